"""The work that one machine's processor time is converted with into another's: a product of two matrices."""

from __future__ import annotations

import time
import timeit
from typing import Final

import torch

MATRIX_PRODUCT: Final = "script/matrix_product"
"""Its kind of work: a calibrated node has a measured time for it."""

WIDTH, REPEATS = 256, 30
PRODUCT_FLOPS = 2 * WIDTH**3

_processor_s = time.thread_time  # of the real clock: in a script's process, `time` has the cluster's


def matrix_product_s() -> float:
    """Return the processor time that one thread of this machine takes for the product; the quickest of several."""
    matrix = torch.ones(WIDTH, WIDTH)
    return min(timeit.repeat(lambda: torch.mm(matrix, matrix), timer=_processor_s, number=1, repeat=REPEATS))
