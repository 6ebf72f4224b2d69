"""Vectors cut out of a replica's parameters, with a separate optimizer: what one of several ranks updates.

The optimizer must work elementwise, as SGD and AdamW do: it sees a vector, not the parameters' shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from simcluster.transport import Cost
from simcluster.workloads.layers.part import Part, count_part
from simcluster.workloads.optimizers import MakeOptimizer
from simcluster.workloads.steps import take_step


class Pieces(Part):
    """A Part of vectors: *parameters*, numbered by *places*; *state_bytes* is the size of the optimizer's state."""

    def __init__(
        self,
        vectors: Sequence[Tensor],
        clip_norm: float | None,
        step: Callable[[Sequence[Tensor]], None],
        counted: tuple[Cost, Cost, int],
        device: str = "cpu",
        optimizer: torch.optim.Optimizer | None = None,
    ) -> None:
        super().__init__(range(len(vectors)), vectors, clip_norm, step, counted[:2], device, optimizer)
        self.state_bytes = counted[2]

    def checkpoint_state(self) -> dict[str, Any]:
        """Return a Part's state, marked as sharded: vectors and optimizer state are one rank's part of a whole."""
        return self._state(sharded=True)


def make_pieces(vectors: Sequence[Tensor], make_optimizer: MakeOptimizer, clip_norm: float | None, kind: str) -> Pieces:
    """Return Pieces of *vectors*, which a step changes in place."""
    trainable = [nn.Parameter(vector) for vector in vectors]
    counted = count_pieces(vectors, make_optimizer, clip_norm, kind)
    optimizer = make_optimizer(trainable)
    step = partial(take_step, optimizer, trainable, clip_norm=None)
    return Pieces(vectors, clip_norm, step, counted, optimizer=optimizer)


def count_pieces(
    vectors: Sequence[Tensor], make_optimizer: MakeOptimizer, clip_norm: float | None, kind: str
) -> tuple[Cost, Cost, int]:
    """Return (cost of a step, cost of the squared norm, bytes of optimizer state), counted on copies, possibly fake."""
    copies = [nn.Parameter(torch.zeros_like(vector)) for vector in vectors]
    optimizer = make_optimizer(copies)
    take_step(optimizer, copies, [torch.zeros_like(copy) for copy in copies], None)
    state = (value for copy in copies for value in optimizer.state.get(copy, {}).values())
    state_bytes = sum(value.nbytes for value in state if isinstance(value, Tensor))
    return (*count_part(vectors, make_optimizer, clip_norm, kind), state_bytes)
