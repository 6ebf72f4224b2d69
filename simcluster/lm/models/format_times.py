"""The time of a token's products with weights in each format, which calibration measures."""

from __future__ import annotations

import copy
import time
import timeit
from functools import lru_cache

import torch
from torch import nn

from simcluster.compute import HOST
from simcluster.lm.formats import FORMATS, PRODUCT_COPIES, PRODUCT_FLOPS, PRODUCT_SHAPE, work_in
from simcluster.lm.models.parameters import NUMBER_TYPES, QUANTISED
from simcluster.lm.models.quantised import Int4Rows, Int8Rows, QuantisedLinear

REPEATS = 2


def format_products() -> list[tuple[str, int, float]]:
    """Return (kind of work, FLOPs, processor seconds on one thread) of the products in each format.

    The seconds are the least of several measurements.
    """
    return [(work_in(name), PRODUCT_FLOPS, _seconds(name)) for name in FORMATS]


@torch.no_grad()
def _seconds(name: str) -> float:
    matrices = _matrices(name)
    token = torch.ones(1, PRODUCT_SHAPE[1], dtype=NUMBER_TYPES.get(name, torch.float32))

    def multiply() -> None:
        for one in matrices:
            one(token)

    return min(timeit.repeat(multiply, timer=time.thread_time, number=1, repeat=REPEATS))


@lru_cache
def _matrices(name: str) -> list[nn.Module]:
    return [copy.deepcopy(one) for one in [_matrix(name)] * PRODUCT_COPIES]


def _matrix(name: str) -> nn.Module:
    weights = torch.randn(PRODUCT_SHAPE, generator=torch.Generator().manual_seed(0))
    if name in QUANTISED:
        rows = Int4Rows([weights], PRODUCT_SHAPE) if name == "q4" else Int8Rows([weights], PRODUCT_SHAPE, HOST)
        return QuantisedLinear(rows)
    found = nn.Linear(PRODUCT_SHAPE[1], PRODUCT_SHAPE[0], bias=False, dtype=NUMBER_TYPES.get(name, torch.float32))
    found.weight.data.copy_(weights)
    return found
