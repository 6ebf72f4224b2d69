"""The ranks that a training plan times, and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

from simcluster.lm.training_plans.extrapolated_gpt import GptBlocks
from simcluster.lm.training_plans.ring import NUMBER_BYTES, RingHop, ring
from simcluster.topology import Topology
from simcluster.topology.model.duration import expected_s
from simcluster.transport import Cost
from simcluster.workloads.data.samples import Batch


@dataclass(frozen=True)
class StepTime:
    """The time *step_s* of a step. The busiest rank computes for *compute_s* of that time.

    *sent_bytes* is the number of bytes that all ranks send.
    """

    step_s: float
    compute_s: float
    sent_bytes: float


class RankGroup:
    """Ranks on the nodes *names* of *topology*; *sizes* has the batch size of each rank."""

    def __init__(self, topology: Topology, names: Sequence[str], blocks: GptBlocks, sizes: Sequence[int]) -> None:
        self.topology = topology
        self.names = tuple(names)
        self.blocks = blocks
        self.sizes = tuple(sizes)
        self.devices = [topology.device(name) for name in names]
        self.replica = blocks.replica(sizes)
        self.batches = cache(self._batch)
        self.hops = cache(self._hops)

    def _batch(self, samples: int) -> Batch:
        return next(self.blocks.replica([samples]).batches())

    @cached_property
    def numbers(self) -> int:
        """The number of trainable parameters of the model."""
        return sum(shape.numel() for shape in self.replica.shapes)

    def _hops(self, numbers: int) -> list[RingHop]:
        """Return the hops of a ring with chunks of a vector of *numbers* elements."""
        return ring(self.topology, self.names, NUMBER_BYTES * -(-numbers // len(self.names)))

    def on_each(self, cost: Callable[[int], Cost]) -> list[float]:
        """Return the seconds of *cost* on each rank. *cost* takes the batch size of a rank."""
        return [expected_s(device, cost(size)) for device, size in zip(self.devices, self.sizes, strict=True)]

    def gradient_cost(self, samples: int) -> Cost:
        return self.replica.gradient_cost(self.batches(samples))

    @cached_property
    def gradients_s(self) -> list[float]:
        return self.on_each(self.gradient_cost)

    def summed_bytes(self, numbers: int) -> int:
        """Return the bytes that all ranks send in an all-reduce of *numbers* elements."""
        return 2 * (len(self.names) - 1) * NUMBER_BYTES * numbers

    @cached_property
    def rates(self) -> tuple[float, ...]:
        """Each rank's FLOPs per second while it computes the gradient of its batch."""
        return tuple(self.gradient_cost(n).flops / s for n, s in zip(self.sizes, self.gradients_s, strict=True))

    @cached_property
    def works_s(self) -> list[float]:
        """Each rank's seconds for a gradient and an optimizer step of the whole model."""
        cost = self.replica.apply_cost()
        return [a + expected_s(device, cost) for a, device in zip(self.gradients_s, self.devices, strict=True)]
