"""A replica for timing only. Its tensors have no values, and its costs are those of the real work.

An algorithm that gets a `TimingReplica` sends the same messages as with a `Replica`, unless it
branches on a value.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from operator import is_
from typing import Any

import torch
from torch import Tensor

from simcluster.transport import Cost
from simcluster.unknown_number import UNKNOWN
from simcluster.workloads.costs.sketch import Sketch, meta
from simcluster.workloads.data.samples import Batch, BatchSizes, Samples
from simcluster.workloads.evaluation import UntrainedState
from simcluster.workloads.layers.layers import Layer, Layers, check_layered
from simcluster.workloads.layers.part import ParameterPart
from simcluster.workloads.layers.tensor_shard import TensorShard
from simcluster.workloads.progress.ledger import UnkeptLedger
from simcluster.workloads.replica import Replica
from simcluster.workloads.weights import check_shapes
from simcluster.workloads.weights_file import WeightsFile


class TimingReplica(Replica):
    """A Replica without values: its tensors are on torch's meta device, its losses are unknown, and
    its shard is empty.

    Shapes are computed once for all replicas, so a thousand replicas of a model of any size take
    little memory.
    """

    computes = False

    def __init__(
        self, sketch: Sketch, train: Samples, test: Samples | None, batch_sizes: BatchSizes, steps: int, rank: int
    ) -> None:
        # Do not call Replica's constructor: it would make a model.
        self._counter = self._sketch = sketch
        self.device = torch.device("meta")
        self._model = sketch.model
        self._trainable = sketch.trainable
        self.names = list(sketch.names)
        self._train = train
        self._test = test
        self._size = len(batch_sizes)
        self.batch_sizes = batch_sizes
        self.batch_size = batch_sizes[rank]
        self.steps = steps
        self._make_layer = partial(TimingLayer, sketch)
        self._layers: Layers | None = None
        self._deferred = None
        self._stepped = False
        self._counted: tuple[Any, Tensor, Cost] | None = None  # the tensors of a batch, and its cost
        self.ledger = UnkeptLedger()

    @cached_property
    def parameters(self) -> list[Tensor]:
        # Make the tensors on demand: few algorithms read the weights of every node, and the tensors
        # of thousands of nodes add up.
        return self._separate(self._sketch.parameters)

    @cached_property
    def shapes(self) -> list[Tensor]:
        return self._sketch.parameters

    def initial(self, places: Sequence[int]) -> list[Tensor]:
        return [self.parameters[place] for place in places]

    def put(self, weights: Mapping[int, Tensor]) -> None:
        pass

    @property
    def shard_size(self) -> int:
        return 0

    def batches(self, first: int | None = None) -> Iterator[Batch]:
        return self._batches_of(self.batch_size, self.done if first is None else first)

    def joined_batches(self) -> Iterator[Batch]:
        return self._batches_of(self.batch_sizes.total, 0)

    def _batches_of(self, size: int, first: int) -> Iterator[Batch]:
        inputs, targets = self._sketch.batch(self._samples, size, shared=self.keeps_shapes)
        for step in range(first, self.steps):
            yield Batch(inputs, targets, step)

    def loss_and_gradients(self, batch: Batch) -> tuple[float, list[Tensor]]:
        self.note_work("loss_and_gradients")
        self.gradient_cost(batch)  # raises UsageError if the model does not take this shape
        return UNKNOWN, self._separate(self._sketch.parameters)

    def gradient_cost(self, batch: Batch) -> Cost:
        known = self._counted
        if known is None or known[0] is not batch.inputs or known[1] is not batch.targets:
            known = self._counted = (batch.inputs, batch.targets, self._sketch.gradient(batch))
        return known[2]

    def apply_cost(self) -> Cost:
        return self._step_cost

    @cached_property
    def _step_cost(self) -> Cost:
        return super().apply_cost()

    def apply(self, gradients: Sequence[Tensor], batches: int = 1, of: int = 1) -> None:
        self.note_work("apply")
        self._check_shapes("gradients", gradients)
        self._stepped = True

    def load(self, parameters: Sequence[Tensor]) -> None:
        self._check_shapes("parameters", parameters)

    def snapshot(self) -> list[Tensor]:
        return self._separate(self.parameters)

    def part(self, places: Sequence[int]) -> ParameterPart:
        self.is_parted = True
        return self._timed_part(places, [self._sketch.parameters[place] for place in places])

    def pieces(self, vectors: Sequence[Tensor]) -> ParameterPart:
        return self._timed_part(range(len(vectors)), vectors)

    def tensor_shard(self, size: int | None = None) -> TensorShard:
        check_layered(self._counter.loss, self._samples)
        self.is_parted = True
        size = size or self._size
        share = self._sketch.share(size)
        return self._shard_of(share, lambda: self._timed_part(range(len(share.parameters)), share.parameters), size)

    def _timed_part(self, places: Sequence[int], parameters: Sequence[Tensor]) -> ParameterPart:
        counted, values = self._sketch.part(parameters), [meta(parameter) for parameter in parameters]
        return ParameterPart(places, values, self._sketch.clip_norm, lambda _: None, counted, device="meta")

    def evaluate_weights(
        self, parameters: Sequence[Tensor] | WeightsFile, source: UntrainedState | None = None, *, takes: bool = False
    ) -> dict[str, float]:
        if not isinstance(parameters, WeightsFile):
            self._check_shapes("parameters", parameters)
        if self._test is None:
            return {}
        targets = self._test.targets
        classes = targets.dim() == 1 and not targets.is_floating_point()
        return {"loss": UNKNOWN, "accuracy": UNKNOWN} if classes else {"loss": UNKNOWN}

    def state(self) -> dict[str, Tensor]:
        return self._sketch.state(stepped=self._stepped)

    def first_batch(self) -> Batch:
        return next(self._batches_of(self.batch_size, 0))

    def statistics(self) -> list[Tensor]:
        return [meta(self._model.get_buffer(name)) for name in self.running]

    def drop_weights(self) -> None:
        """Do nothing, since there are no values."""

    def weights_sha256(self) -> None:
        return None

    def _separate(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return *tensors*, which other replicas share, or new tensors like them if the algorithm
        may reshape tensors in place.
        """
        return list(tensors) if self.keeps_shapes else [tensor.detach() for tensor in tensors]

    def _check_shapes(self, what: str, tensors: Sequence[Tensor]) -> None:
        known = self._sketch.parameters
        if self.keeps_shapes and len(tensors) == len(known) and all(map(is_, tensors, known)):
            return
        if [tensor.shape for tensor in tensors] != self._sketch.shapes:
            check_shapes(what, self.names, known, tensors)


class TimingLayer(Layer):
    """A Layer that computes only shapes, once for all nodes.

    Its stash has no activations to hold.
    """

    def __init__(self, sketch: Sketch, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._sketch = sketch
        # Fake tensors work only inside their mode, so `backward` returns meta tensors.
        self._shapes = [meta(parameter) for parameter in self._trainable]

    def forward(self, inputs: Tensor, micro: Hashable = 0) -> Tensor:
        self._check_new(micro)
        outputs = self._sketch.output_of(self._modules, self._key, inputs)
        self._stash[micro] = inputs, outputs, False
        return outputs

    def loss(self, inputs: Tensor, targets: Tensor, micro: Hashable = 0) -> float:
        self._check_has_loss()
        self._check_new(micro)
        self._stash[micro] = inputs, self._sketch.output_of(self._modules, self._key, inputs), True
        return UNKNOWN

    def backward(
        self,
        gradient: Tensor | None = None,
        micro: Hashable = 0,
        share: float = 1.0,
        sums: Sequence[Tensor] | None = None,
    ) -> tuple[Tensor | None, list[Tensor]]:
        inputs, _, _ = self._take(micro)
        gradients = [torch.empty_like(parameter, device="meta") for parameter in self._shapes]
        return (inputs.detach() if self._wants_input_gradient and inputs.is_floating_point() else None), gradients
