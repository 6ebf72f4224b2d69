"""A part of a replica's parameters with its share of the optimizer's state: what one stage or owner updates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from simcluster.transport import Cost
from simcluster.workloads.costs.costs import elementwise_cost
from simcluster.workloads.optimizers import MakeOptimizer
from simcluster.workloads.saved import Sharded, load_optimizer, numbered, optimizer_state
from simcluster.workloads.steps import take_step


class Part:
    """The parameters at *places* of `Replica.parameters`; `replica.part(places)` makes one.

    If the norm of all gradients is limited (*clips*), the sum of `squared_norm` over all parts must be given to
    `apply`.
    """

    def __init__(
        self,
        places: Sequence[int],
        parameters: Sequence[Tensor],
        clip_norm: float | None,
        step: Callable[[Sequence[Tensor]], None],
        costs: tuple[Cost, Cost],
        device: str = "cpu",
        optimizer: torch.optim.Optimizer | None = None,
    ) -> None:
        self._optimizer = optimizer
        self.places, self.parameters = list(places), list(parameters)
        self._clip_norm, self._step, self._costs = clip_norm, step, costs
        self._device = device

    @property
    def clips(self) -> bool:
        """Whether `apply` needs the norm of all gradients."""
        return self._clip_norm is not None

    def squared_norm(self, gradients: Sequence[Tensor]) -> Tensor:
        """Return the sum of squares of *gradients*, as a vector of one float64."""
        total = torch.zeros(1, dtype=torch.float64, device=self._device)
        for gradient in gradients:
            total = total + torch.linalg.vector_norm(gradient).double() ** 2
        return total

    def apply(self, gradients: Sequence[Tensor], squared_norm: Tensor | None = None) -> None:
        """Take one optimizer step with *gradients*, one for each of *places*; *squared_norm* is that of all parts."""
        if len(gradients) != len(self.places):
            raise ValueError(f"{len(gradients)} gradients, but the part has {len(self.places)} parameters")
        if self._clip_norm is not None:
            if squared_norm is None:
                raise ValueError("gradients are clipped by the norm of all of them, so apply needs squared_norm")
            gradients = clipped(gradients, self._clip_norm, squared_norm)
        self._step(gradients)

    def checkpoint_state(self) -> dict[str, Any]:
        """Return the parameters and the optimizer's state for them, if the part has a separate optimizer."""
        return self._state(sharded=False)

    def load_checkpoint_state(self, state: dict[str, Any]) -> None:
        """Overwrite both in place."""
        assert self._optimizer is not None, "a separate optimizer"
        for mine, saved in zip(self.parameters, state["parameters"], strict=True):
            mine.copy_(saved)
        load_optimizer(self._optimizer, numbered(self._trainable), state["optimizer"])

    def _state(self, *, sharded: bool) -> dict[str, Any]:
        assert self._optimizer is not None, "a separate optimizer"
        parameters = [Sharded(tensor) if sharded else tensor for tensor in self.parameters]
        optimizer = optimizer_state(self._optimizer, numbered(self._trainable), sharded=sharded)
        return {"parameters": parameters, "optimizer": optimizer}

    @property
    def _trainable(self) -> list[nn.Parameter]:
        """The parameters as the optimizer has them, in its order."""
        assert self._optimizer is not None
        return [parameter for group in self._optimizer.param_groups for parameter in group["params"]]

    def apply_cost(self) -> Cost:
        """Return the cost of `apply`, counted as in `Replica.apply_cost`."""
        return self._costs[0]

    def norm_cost(self) -> Cost:
        """Return the cost of `squared_norm`."""
        return self._costs[1]


def clipped(gradients: Sequence[Tensor], clip_norm: float, squared_norm: Tensor) -> list[Tensor]:
    """Return *gradients* scaled down so that the norm over all parts is at most *clip_norm*."""
    scale = torch.clamp(clip_norm / squared_norm.sqrt(), max=1.0)
    return [gradient * scale.to(gradient.dtype) for gradient in gradients]


def count_part(
    parameters: Sequence[Tensor], make_optimizer: MakeOptimizer, clip_norm: float | None, kind: str
) -> tuple[Cost, Cost]:
    """Return (cost of a step with *parameters*, cost of their squared norm), counted on copies, which may be fake."""
    copies = [nn.Parameter(parameter.detach().clone()) for parameter in parameters]
    optimizer = make_optimizer(copies) if copies else None
    gradients = [torch.ones_like(copy) for copy in copies]

    def step(gradients: Sequence[Tensor]) -> None:
        if optimizer is not None:
            take_step(optimizer, copies, gradients, None)

    part = Part(range(len(copies)), copies, clip_norm, step, (Cost(0.0), Cost(0.0)))
    total = part.squared_norm(gradients)
    step(gradients)  # sets up the optimizer's state; later steps cost the same
    apply = elementwise_cost(lambda: part.apply(gradients, total), kind)
    return apply, elementwise_cost(lambda: part.squared_norm(gradients), kind)
