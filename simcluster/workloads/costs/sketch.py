"""Sizes and costs of a workload's model, found without computing the model, for `numerics: none`.

All replicas of a workload share one sketch.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from simcluster.errors import UsageError
from simcluster.payload import count_once
from simcluster.process.loading import compiler_loads
from simcluster.transport import Cost
from simcluster.workloads.costs.counter import Counter
from simcluster.workloads.data.samples import Batch, Samples
from simcluster.workloads.global_rng import borrowed
from simcluster.workloads.layers.tensor_shard import ShardModules
from simcluster.workloads.precision import forward_in
from simcluster.workloads.saved import training_state
from simcluster.workloads.steps import rehearsed, trainable_of

T = TypeVar("T")


@dataclass(eq=False)
class Sketch(Counter):
    """A Counter without values.

    *names* and *parameters* are like those of `Replica`, but on torch's meta device; *shapes* are
    the parameters' shapes. *model* and *trainable* consist of fake tensors. Work whose control flow
    depends on values raises UsageError, which names the work.
    """

    def __post_init__(self) -> None:
        self._mode = self.mode()
        self.model = self.run("the model", super().a_model)
        named = trainable_of(self.model)
        self.names, self.trainable = [name for name, _ in named], [parameter for _, parameter in named]
        self.parameters = [count_once(meta(parameter)) for parameter in self.trainable]
        self.shapes = [parameter.shape for parameter in self.parameters]
        self._batches: dict[tuple[Samples, int], Samples] = {}
        # The last batch that was counted, and the cost of its gradient.
        self._last: tuple[Batch, Cost] | None = None

    def mode(self) -> AbstractContextManager[object]:
        """Return the torch mode for all work of this sketch. It can be entered any number of
        times.
        """
        with compiler_loads():
            from torch._subclasses.fake_tensor import FakeTensorMode

            return FakeTensorMode(allow_non_fake_inputs=True)

    def batch(self, samples: Samples, size: int, *, shared: bool) -> tuple[Any, Tensor]:
        """Return (inputs, targets) without values, like *size* of *samples*.

        If *shared*, all callers get the same tensors; otherwise they are new.
        """
        found = self._batches.get((samples, size))
        if found is None:
            found = self._batches[samples, size] = Samples(
                *samples.each(lambda tensor: torch.empty((size, *tensor.shape[1:]), dtype=tensor.dtype, device="meta"))
            )
        return (found.inputs, found.targets) if shared else found.each(Tensor.detach)

    def gradient(self, batch: Batch) -> Cost:
        last = self._last  # replicas that share their tensors pass the same batch again and again
        if last is None or last[0].inputs is not batch.inputs or last[0].targets is not batch.targets:
            last = self._last = batch, super().gradient(batch)
        return last[1]

    def output_of(self, modules: Sequence[nn.Module], which: Hashable, inputs: Tensor) -> Tensor:
        """Return the output of *modules* for *inputs*, without values.

        *which* identifies the modules.
        """

        def forward() -> Tensor:
            value = self.like(inputs)
            with torch.no_grad(), forward_in(self.precision, value.device):
                for module in modules:
                    value = module(value)
            return value

        return meta(self.once(("output", which, inputs.shape, inputs.dtype), "a layer", forward))

    def state(self, *, stepped: bool) -> dict[str, Tensor]:
        """Return the entries of `Replica.state` without values, after the first step if *stepped*,
        otherwise before it.
        """
        copies, optimizer, _ = self.once("step", "the optimizer", self._first_step)
        found = training_state(self.model, self.names, copies if stepped else [], optimizer)
        return {name: meta(value) for name, value in found.items()}

    def _first_step(self) -> tuple[list[nn.Parameter], torch.optim.Optimizer, Callable[[], None]]:
        return rehearsed([self.like(parameter) for parameter in self.parameters], self.make_optimizer, self.clip_norm)

    def share(self, size: int) -> ShardModules:
        return self.once(("share", size), "the model's layers", partial(super().share, size))

    def run(self, what: str, work: Callable[[], T]) -> T:
        try:
            with borrowed(0, others=True), self._mode:
                return work()
        except UsageError:
            raise
        except Exception as error:
            found = f"none, but {what} cannot do without values ({type(error).__name__}: {error})"
            raise UsageError("numerics", found, "real, or work that does not depend on values") from error

    def a_model(self) -> nn.Module:
        return self.model

    def like(self, tensor: Tensor) -> Tensor:
        return torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")


def meta(tensor: Tensor) -> Tensor:
    """Return a tensor without values, with the shape and dtype of *tensor*."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
