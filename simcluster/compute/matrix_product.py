"""The time of a matrix product, by which processor time on one machine is converted into
another's.
"""

from __future__ import annotations

import time
import timeit

import torch

MATRIX_PRODUCT = "script/matrix_product"
"""The name of the matrix product as a kind of work: calibration measures its time on a node."""

WIDTH, REPEATS = 256, 30
PRODUCT_FLOPS = 2 * WIDTH**3

# Bound before a script's process replaces the clocks in `time` by the cluster's.
_processor_s = time.thread_time


def matrix_product_s() -> float:
    """Return the processor time in seconds that one thread of this machine takes for the product.

    It is the minimum of several measurements.
    """
    matrix = torch.ones(WIDTH, WIDTH)
    return min(timeit.repeat(lambda: torch.mm(matrix, matrix), timer=_processor_s, number=1, repeat=REPEATS))
