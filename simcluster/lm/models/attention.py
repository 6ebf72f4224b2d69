"""Attention of a sequence over its cache, in products of shapes that do not depend on how the sequence is cut.

Keys are read in whole tiles; those after a query get the weight 0. So a query has the same result alone or among others
of its sequence, as far as the rows of torch's products are alike (see `Matrix`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from simcluster.lm.models.matrix import LEAST_ROWS

TILE = 128
"""Keys per product: fewer than those at which kernels add up in several parts."""

QUERIES = 128
"""Queries per product: bounds the memory of scores."""


def tiled(tokens: int) -> int:
    """Return *tokens*, rounded up to whole tiles."""
    return -(-tokens // TILE) * TILE


@dataclass(frozen=True, slots=True)
class Queries:
    """The tokens [*first*, *last*) of a part; *mask* (1, rows, keys) is added to scores, a row per token and head of a
    group.
    """

    first: int
    last: int
    mask: Tensor


def queries(start: int, count: int, group: int) -> list[Queries]:
    """Return the queries of *count* tokens after *start* others, of *group* heads that share keys."""
    found = []
    for first in range(0, count, QUERIES):
        last = min(count, first + QUERIES)
        keys = torch.arange(tiled(start + last))
        positions = torch.arange(start + first, start + last).repeat_interleave(group)
        mask = torch.zeros(1, max(LEAST_ROWS, len(positions)), len(keys))
        mask[0, : len(positions)].masked_fill_(keys > positions[:, None], -torch.inf)
        found.append(Queries(first, last, mask))
    return found


def attended(query: Tensor, keys: Tensor, values: Tensor, parts: list[Queries]) -> Tensor:
    """Return what *query* (n, heads, width) takes of *values* (KV heads, n, width): (n, heads * width)."""
    mixed = [_mixed(query[one.first : one.last], keys, values, one.mask) for one in parts]
    return mixed[0] if len(mixed) == 1 else torch.cat(mixed)


def _mixed(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    count, heads, width = query.shape
    kv_heads, (rows, end) = len(keys), mask.shape[1:]
    grouped = query.view(count, kv_heads, -1, width).transpose(0, 1).reshape(kv_heads, -1, width)
    found = grouped.shape[1]
    if found < rows:
        grouped = functional.pad(grouped, (0, 0, 0, rows - found))
    scores = torch.baddbmm(mask, grouped, keys[:, :end].transpose(1, 2), alpha=width**-0.5)
    shares = scores.softmax(-1)
    mixed = torch.bmm(shares[:, :, :TILE], values[:, :TILE])
    for tile in range(TILE, end, TILE):
        mixed.baddbmm_(shares[:, :, tile : tile + TILE], values[:, tile : tile + TILE])
    return mixed[:, :found].view(kv_heads, count, -1, width).transpose(0, 1).reshape(count, heads * width)
