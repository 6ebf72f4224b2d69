"""A replica for timing only: its tensors have no values, its costs are those of the real work.

An algorithm that gets one in place of a Replica sends the same messages, unless it branches on a value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from simcluster.transport import Cost
from simcluster.unknown_number import UNKNOWN
from simcluster.workloads.costs.sketch import Sketch
from simcluster.workloads.costs.timing_layers import timing_layers, timing_shard
from simcluster.workloads.layers.layer_costs import LayerCost
from simcluster.workloads.layers.layers import Layers
from simcluster.workloads.layers.part import Part
from simcluster.workloads.layers.pieces import Pieces
from simcluster.workloads.layers.tensor_shard import TensorShard
from simcluster.workloads.replica import Replica, check_shapes
from simcluster.workloads.samples import Batch, Samples


class TimingReplica(Replica):
    """A Replica without numbers: meta tensors, unknown losses, an empty shard.

    Shapes are computed once for all replicas, so a thousand of them, of a model of any size, take little memory.
    """

    computes = False

    def __init__(
        self, sketch: Sketch, train: Samples, test: Samples | None, batch_size: int, steps: int, size: int = 1
    ) -> None:
        # Replica's own constructor would make a model.
        self._sketch = sketch
        self.names = list(sketch.names)
        self.batch_size, self.steps = batch_size, steps
        self._train, self._size = train, size
        self._inputs, self._targets = (_batch_of(part, batch_size) for part in (train.inputs, train.targets))
        self._test = test
        self._stepped = False
        self._layers: Layers | None = None

    def __getattr__(self, name: str) -> Any:
        # Made on demand: few algorithms read the weights of every node, and with thousands of nodes they add up.
        if name != "parameters":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self.parameters = _views(self._sketch.parameters)
        return self.parameters

    @property
    def shard_size(self) -> int:
        return 0

    def batches(self, first: int | None = None) -> Iterator[Batch]:
        for step in range(self.done if first is None else first, self.steps):
            yield Batch(self._inputs, self._targets, step)

    def joined_batches(self) -> Iterator[Batch]:
        parts = (self._train.inputs, self._train.targets)
        inputs, targets = (_batch_of(part, self._size * self.batch_size) for part in parts)
        for step in range(self.steps):
            yield Batch(inputs, targets, step)

    def loss_and_gradients(self, batch: Batch) -> tuple[float, list[Tensor]]:
        self._sketch.gradient_cost(batch)  # raises where the model does not take this shape
        return UNKNOWN, _views(self._sketch.parameters)

    def apply(self, gradients: Sequence[Tensor]) -> None:
        self._check_shapes("gradients", gradients)
        self._stepped = True

    def load(self, parameters: Sequence[Tensor]) -> None:
        self._check_shapes("parameters", parameters)

    def snapshot(self) -> list[Tensor]:
        return _views(self.parameters)

    def gradient_cost(self, batch: Batch) -> Cost:
        return self._sketch.gradient_cost(batch)

    def apply_cost(self) -> Cost:
        return self._sketch.apply_cost()

    def part(self, places: Sequence[int]) -> Part:
        self.is_parted = True
        return self._sketch.part(places)

    def pieces(self, vectors: Sequence[Tensor]) -> Pieces:
        return self._sketch.pieces(vectors)

    def layers(self) -> Layers:
        if self._layers is None:
            self._layers = timing_layers(self._sketch)
        return self._layers

    def layer_costs(self, batch: Batch) -> list[LayerCost]:
        return self._sketch.layer_costs(batch)

    def tensor_shard(self) -> TensorShard:
        self.is_parted = True
        return timing_shard(self._sketch, self._size)

    def evaluate_weights(self, parameters: Sequence[Tensor]) -> dict[str, float]:
        self._check_shapes("parameters", parameters)
        if self._test is None:
            return {}
        targets = self._test.targets
        classes = targets.dim() == 1 and not targets.is_floating_point()
        return {"loss": UNKNOWN, "accuracy": UNKNOWN} if classes else {"loss": UNKNOWN}

    def state(self) -> dict[str, Tensor]:
        return self._sketch.state(stepped=self._stepped)

    def weights_sha256(self) -> None:
        return None

    def _check_shapes(self, what: str, tensors: Sequence[Tensor]) -> None:
        check_shapes(what, self.names, self._sketch.parameters, tensors)


def _views(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return separate tensors, so that reshaping one in place does not affect another replica."""
    return [tensor.detach() for tensor in tensors]


def _batch_of(samples: Tensor, batch_size: int) -> Tensor:
    return torch.empty((batch_size, *samples.shape[1:]), dtype=samples.dtype, device="meta")
