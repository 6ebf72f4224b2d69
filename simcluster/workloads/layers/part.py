"""A part of a replica's parameters with its share of the optimizer's state, which one pipeline
stage or owner updates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from simcluster.transport import Cost
from simcluster.workloads.layers.scratch import Scratch
from simcluster.workloads.operator_costs import elementwise_cost
from simcluster.workloads.optimizers import MakeOptimizer
from simcluster.workloads.saved import ShardedTensor, load_optimizer, optimizer_state, state_tensors
from simcluster.workloads.steps import rehearsed, take_step


class PartCost(NamedTuple):
    """The costs of a part: the cost of its optimizer step and of its squared norm, and the bytes of
    its optimizer state and of the step's temporaries.
    """

    apply: Cost
    norm: Cost
    state_bytes: int
    scratch_bytes: int


class ParameterPart:
    """The parameters at indices *places* of `Replica.parameters`, which are updated separately from
    the others; `replica.part(places)` makes one.

    If the norm of all gradients is limited (*clips*), `apply` needs the sum of `squared_norm` over
    all parts. *counted* holds the costs, from `count_part`. *optimizer*: the part's own optimizer;
    None if the replica's optimizer updates it. *sharded*: whether each parameter, with its
    optimizer state, is one rank's part of a whole vector.
    """

    def __init__(
        self,
        places: Sequence[int],
        parameters: Sequence[Tensor],
        clip_norm: float | None,
        step: Callable[[Sequence[Tensor]], None],
        counted: PartCost,
        device: str | torch.device = "cpu",
        optimizer: torch.optim.Optimizer | None = None,
        sharded: bool = False,
    ) -> None:
        self.places, self.parameters = list(places), list(parameters)
        self._clip_norm = clip_norm
        self._step = step
        self._device = device
        self._apply_cost, self._norm_cost, self.state_bytes, self.scratch_bytes = counted
        self._optimizer, self._sharded = optimizer, sharded

    @property
    def clips(self) -> bool:
        """Whether `apply` needs the norm of all gradients."""
        return self._clip_norm is not None

    def squared_norm(self, gradients: Sequence[Tensor]) -> Tensor:
        """Return the sum of squares of *gradients*, as a vector of one float64 on *device* (the
        host by default).
        """
        total = torch.zeros(1, dtype=torch.float64, device=self._device)
        for gradient in gradients:
            total = total + torch.linalg.vector_norm(gradient).to(total.device).double() ** 2
        return total

    def apply(self, gradients: Sequence[Tensor], squared_norm: Tensor | None = None) -> None:
        """Take one optimizer step with *gradients*, one for each of *places*.

        *squared_norm*: the sum of `squared_norm` over all parts, which is needed if *clips*.
        Clipping scales *gradients* in place, since a copy might be as large as all weights of this
        part.
        """
        if len(gradients) != len(self.places):
            raise ValueError(f"{len(gradients)} gradients, but the part has {len(self.places)} parameters")
        if self._clip_norm is not None:
            if squared_norm is None:
                raise ValueError("gradients are clipped by the norm of all of them, so apply needs squared_norm")
            scale = torch.clamp(self._clip_norm / squared_norm.sqrt(), max=1.0)
            gradients = [gradient.mul_(scale.to(gradient.device, gradient.dtype)) for gradient in gradients]
        self._step(gradients)

    def checkpoint_state(self) -> dict[str, Any]:
        """Return the parameters and the optimizer's state.

        The part must have its own optimizer.
        """
        optimizer, numbered = self._separate()
        parameters = [ShardedTensor(tensor) if self._sharded else tensor for tensor in self.parameters]
        return {"parameters": parameters, "optimizer": optimizer_state(optimizer, numbered, sharded=self._sharded)}

    def load_checkpoint_state(self, state: dict[str, Any]) -> None:
        """Overwrite the parameters and the optimizer state, in place, with *state*, which
        `checkpoint_state` returned.
        """
        optimizer, numbered = self._separate()
        for mine, saved in zip(self.parameters, state["parameters"], strict=True):
            mine.copy_(saved)
        load_optimizer(optimizer, numbered, state["optimizer"])

    def _separate(self) -> tuple[torch.optim.Optimizer, dict[str, nn.Parameter]]:
        """Return (the part's own optimizer, number -> parameter in the optimizer's order)."""
        assert self._optimizer is not None, "a separate optimizer"
        parameters = [parameter for group in self._optimizer.param_groups for parameter in group["params"]]
        return self._optimizer, {str(number): parameter for number, parameter in enumerate(parameters)}

    def apply_cost(self) -> Cost:
        """Return the cost of `apply`, counted as in `Replica.apply_cost`."""
        return self._apply_cost

    def norm_cost(self) -> Cost:
        """Return the cost of `squared_norm`."""
        return self._norm_cost


def count_part(
    parameters: Sequence[Tensor], make_optimizer: MakeOptimizer, clip_norm: float | None, kind: str
) -> PartCost:
    """Return the costs of a part with *parameters*, counted on copies of them. The parameters may
    be fake tensors.
    """
    copies: list[nn.Parameter] = []
    optimizer = None
    if parameters:
        copies, optimizer, _ = rehearsed(parameters, make_optimizer, None)

    def step(gradients: Sequence[Tensor]) -> None:
        if optimizer is not None:
            take_step(optimizer, copies, gradients, None)

    part = ParameterPart(range(len(copies)), copies, clip_norm, step, PartCost(Cost(0.0), Cost(0.0), 0, 0))
    gradients = [torch.ones_like(copy) for copy in copies]
    total = part.squared_norm(gradients)
    with Scratch() as scratch:
        apply = elementwise_cost(lambda: part.apply(gradients, total), kind)
    norm = elementwise_cost(lambda: part.squared_norm(gradients), kind)
    state_bytes = sum(value.nbytes for value in state_tensors(optimizer)) if optimizer is not None else 0
    return PartCost(apply, norm, state_bytes, scratch.most_bytes)
