"""The gradients of several replicas of one workload, each at its weights and its batch, in products over all of them.

The bits differ from those of a replica alone, since a larger product adds in another order: see TOLERANCE.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from simcluster.process.late_copies import share_memory
from simcluster.workloads.costs.memory import count_activations
from simcluster.workloads.data.samples import Batch
from simcluster.workloads.steps import Loss, outputs_of, trainable_of

Found: TypeAlias = tuple[float, list[Tensor]]
"""The loss and the gradients of a batch, as `Replica.loss_and_gradients` returns them."""

TOLERANCE = 1e-5
"""Bound on the difference from a replica alone: of a loss relative to it, of all gradients relative to their norm."""


class Grouped:
    """Computes with *model*, which no replica trains: its buffers and frozen parameters are those of every replica."""

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        self._model, self._loss = model, loss
        self._names = [name for name, _ in trainable_of(model)]
        self._bytes_each: dict[tuple[torch.Size, ...], int] = {}

    def bytes_each(self, batch: Batch) -> int:
        """Return about the memory that a group takes per replica with such a batch: weights, gradients, activations.

        Computes a loss on the first call for a shape.
        """
        shapes = tuple(tensor.shape for tensor in batch.tensors)
        if shapes not in self._bytes_each:
            weights = sum(weight.nbytes for _, weight in trainable_of(self._model))
            self._bytes_each[shapes] = 2 * weights + count_activations(self._model, self._loss, batch)
        return self._bytes_each[shapes]

    def loss_and_gradients(self, parameters: Sequence[Sequence[Tensor]], batches: Sequence[Batch]) -> list[Found]:
        """Return what each replica, with its *parameters*, would return for its batch; batches have equal shapes.

        Weights that share their memory on all replicas, as those pulled from a server do, are not copied.
        """
        inputs, targets = batches[0].each(_stacked, *batches[1:])
        weights: dict[str, Tensor] = {}
        places: dict[str, int | None] = {}
        for name, of_each in zip(self._names, zip(*parameters, strict=True), strict=True):
            shared = share_memory(of_each)
            weights[name], places[name] = (of_each[0], None) if shared else (torch.stack(of_each), 0)
        with _without_advice():
            gradients, losses = self._compute(places)(weights, inputs, targets)
        # Views, since a copy of each costs a fifth of the whole. A gradient that no replica has is one for all of them.
        of_replicas = zip(*(gradients[name].contiguous().unbind() for name in self._names), strict=True)
        return [(loss, list(parts)) for loss, parts in zip(losses.tolist(), of_replicas, strict=True)]

    def _compute(self, places: dict[str, int | None]) -> Callable[..., tuple[dict[str, Tensor], Tensor]]:
        """Return a function of (weights, inputs, targets). *places*: which dimension of a weight numbers replicas."""

        def loss_of(weights: dict[str, Tensor], inputs: Any, targets: Tensor) -> Tensor:
            def model(*given: Any, **named: Any) -> Any:
                return functional_call(self._model, weights, given, named)

            return self._loss(outputs_of(model, inputs), targets)

        by_replica: Callable[..., tuple[dict[str, Tensor], Tensor]] = vmap(
            grad_and_value(loss_of), in_dims=(places, 0, 0), randomness="error"
        )
        return by_replica


@contextmanager
def _without_advice() -> Iterator[None]:
    """Keep vmap from warning of each operator that it computes one replica after the other, such as fused attention."""
    switch = getattr(torch._C._functorch, "_set_vmap_fallback_warning_enabled", None)
    if switch is None:
        yield
        return
    switch(False)
    try:
        yield
    finally:
        switch(True)


def _stacked(*tensors: Tensor) -> Tensor:
    return torch.stack(tensors)


def distance(found: Found, expected: Found) -> float:
    """Return the larger of the relative differences: of the losses, and of all gradients together."""
    (loss, gradients), (other_loss, others) = found, expected
    of_loss = abs(loss - other_loss) / abs(other_loss) if loss != other_loss else 0.0
    difference = _norm([mine - other for mine, other in zip(gradients, others, strict=True)])
    return max(of_loss, difference / _norm(others) if difference else 0.0)


def _norm(tensors: Sequence[Tensor]) -> float:
    return math.sqrt(sum(float(torch.linalg.vector_norm(part.double())) ** 2 for part in tensors))
