"""Rotary positions: pairs of a head's numbers, rotated by angles that grow with the position (Su et al. 2021)."""

from __future__ import annotations

import torch
from torch import Tensor

from simcluster.lm.models.architecture import Architecture

STEP = 512
"""Angles are made for multiples of this number of positions."""


class Rotation:
    """The angles of the positions up to the largest that was asked for."""

    def __init__(self, architecture: Architecture) -> None:
        assert architecture.rope_base is not None
        exponents = torch.arange(0, architecture.head_width, 2, dtype=torch.float64) / architecture.head_width
        self._steps = architecture.rope_base**-exponents
        self._context = architecture.context
        self._cosines = self._sines = torch.empty(0, 1, architecture.head_width)

    def at(self, positions: Tensor, end: int) -> tuple[Tensor, Tensor]:
        """Return what `rotated` needs for *positions*, all before *end*."""
        if end > len(self._cosines):
            # Not the whole context: a file may claim any. Whole steps: the last few of a tensor may round otherwise.
            length = -(-min(2 * end, self._context) // STEP) * STEP
            angles = (torch.arange(length)[:, None].double() * self._steps)[:, None]
            cosines, sines = angles.cos().float(), angles.sin().float()
            self._cosines, self._sines = torch.cat([cosines, cosines], -1), torch.cat([-sines, sines], -1)
        return self._cosines[positions], self._sines[positions]


def rotated(heads: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
    """Return *heads* (n, heads, width) with number i of each rotated with number i + width / 2."""
    cosines, sines = angles
    return heads * cosines + heads.roll(heads.shape[-1] // 2, -1) * sines


def in_halves(weights: Tensor, head_width: int) -> Tensor:
    """Return *weights* of queries or keys that rotate neighbours with their rows in the order that `rotated` needs.

    Products of queries and keys stay the same: both are in that order.
    """
    rows, columns = weights.shape
    return weights.view(-1, head_width // 2, 2, columns).transpose(1, 2).reshape(rows, columns)
