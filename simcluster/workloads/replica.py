"""One node's replica, which has a model, an optimizer, a shard of the data and random generators.

`apply` and `load` change a replica's weights; all other work reads them, so the two must not
overlap. `evaluate`, `state` and `snapshot` leave weights, optimizer and generators as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn

from simcluster.compute import HOST
from simcluster.errors import UsageError
from simcluster.transport import Cost
from simcluster.workloads.checks import try_out
from simcluster.workloads.costs.counter import Counter
from simcluster.workloads.data.iterable import IterableData
from simcluster.workloads.data.partition import Indices
from simcluster.workloads.data.samples import Batch, BatchSizes, Samples
from simcluster.workloads.data.streams import joined, stream
from simcluster.workloads.evaluation import Evaluable
from simcluster.workloads.global_rng import borrowed, drawn_from
from simcluster.workloads.initial.deferred import DeferredModel, RefusingWatch
from simcluster.workloads.initial.tape import Unrecordable
from simcluster.workloads.layers.activations import Held
from simcluster.workloads.layers.layer_costs import LayerCost
from simcluster.workloads.layers.layers import Layer, Layers, check_layered, modules_in_order
from simcluster.workloads.layers.part import ParameterPart
from simcluster.workloads.layers.tensor_shard import ShardModules, TensorShard, share_of
from simcluster.workloads.optimizers import learning_rate_of
from simcluster.workloads.precision import forward_in
from simcluster.workloads.running import floating_buffers
from simcluster.workloads.saved import model_state, optimizer_state, training_state
from simcluster.workloads.steps import differentiate, separate, take_step


class Replica(Evaluable):
    """A node's replica of a Workload; `Workload.replica` makes it.

    *names* and *parameters* list the trainable parameters in the model's order; *parameters* are
    the live weights. Algorithms do not see frozen parameters and buffers, which stay with the
    replica; only running statistics travel with an algorithm's messages
    (simcluster.compute.running). *steps* is the number of batches, which is the same on every rank;
    *batch_sizes* holds the number of samples in a batch of each rank. Replicas share no mutable
    state, so they may work concurrently.
    """

    learning_rate: float | None = None
    """The learning rate of the last optimizer step of the replica or one of its parts. None before
    the first step, or if the optimizer has no learning rate.
    """

    steps_taken = 0
    """The number of optimizer steps that the replica and its parts have taken."""

    keeps_shapes = False
    """Whether the algorithm never changes a tensor's shape in place. If so, replicas without values
    share their tensors.
    """

    def __init__(
        self,
        *,
        counter: Counter,
        train: Samples | IterableData,
        shards: Callable[[int], Sequence[Indices]],
        test: Samples | None,
        batch_sizes: BatchSizes,
        steps: int,
        seed: int,
        rank: int,
        deferred: DeferredModel | None = None,
        device: torch.device = HOST,
    ) -> None:
        self._counter = counter
        model = deferred.model if deferred is not None else counter.make_model()
        self._hold(model, deferred, counter.make_optimizer, device)
        if deferred is None:
            _ = self._optimizer
        self._train = train
        self._shards = shards
        _ = shards(0)  # a set that cannot be dealt is refused now
        self._test = test
        self.batch_sizes = batch_sizes
        self.batch_size = batch_sizes[rank]
        self.steps = steps
        self._seed, self._rank = seed, rank
        self._draws: bool | None = None
        self._layers: Layers | None = None
        self._make_layer: Callable[..., Layer] = Layer
        self._layer_runs: dict[int, int] = {}

    @property
    def shard_size(self) -> int:
        """The number of samples in this rank's shard, which is the same in every epoch.

        An iterable set has no shards; for it, this is the number of samples in a batch.
        """
        return self.batch_size if isinstance(self._train, IterableData) else len(self._shards(0)[self._rank])

    @property
    def _samples(self) -> Samples:
        """The training samples, or samples like them if the set is iterable."""
        return self._train.head if isinstance(self._train, IterableData) else self._train

    def batches(self, first: int | None = None) -> Iterator[Batch]:
        """Yield batches *first* to *steps* - 1, of *batch_size* samples each.

        Every call yields the same batches.

        *first* is *done* by default. An iterable set is read in its own order; from any other set,
        the shard is reshuffled for each pass. A batch may span two passes, so all batches have the
        same size, and samples differ by at most one in how often they are used.
        """
        first = self.done if first is None else first
        return self._noted(self._stream(self._rank, first), first, joined=False)

    def first_batch(self) -> Batch:
        """Return this rank's first batch, for a trial that the ledger does not count."""
        return next(self._stream(self._rank, 0)).to(self.device)

    def joined_batches(self) -> Iterator[Batch]:
        """For each step, yield one batch that joins the batches of all ranks in rank order, for
        ranks that train one model together.

        Every node has all samples, so each node draws the same joined batch by itself.
        """
        streams = [self._stream(rank, self.done) for rank in range(len(self.batch_sizes))]
        return self._noted(joined(streams), self.done, joined=True)

    def _stream(self, rank: int, first: int) -> Iterator[Batch]:
        if isinstance(self._train, IterableData):
            return self._train.batches(rank, self.batch_sizes, self.steps, first)
        size, shards = self.batch_sizes[rank], self._shards
        return stream(self._train, lambda epoch: shards(epoch)[rank], self._seed, rank, size, self.steps, first)

    def _noted(self, batches: Iterator[Batch], first: int, *, joined: bool) -> Iterator[Batch]:
        self.ledger.begin(first, joined=joined)
        for batch in batches:
            self.ledger.draw(batch.step)
            self.drawn_samples += len(batch)
            yield batch.to(self.device)

    def loss_and_gradients(self, batch: Batch) -> tuple[float, list[Tensor]]:
        """Return (the mean loss of *batch*, its gradients with respect to all parameters). The
        gradients are tensors that nothing else holds.

        The gradient with respect to a parameter that the loss does not use is zero. Random numbers
        that the model draws from the global generators (dropout) depend only on the seed, the rank
        and *batch.step*. A model that draws nothing while its cost is counted, or for its first
        batch, is assumed never to draw.
        """
        self.note_work("loss_and_gradients")
        if not self.may_draw:
            return self._loss_and_gradients(batch)
        with self._lent("forward", str(self._rank), str(batch.step)):
            before = drawn_from(self.device) if self._draws is None else None
            result = self._loss_and_gradients(batch)
            if before is not None:
                self._draws = self._counter.counted.draws or before != drawn_from(self.device)
        return result

    @property
    def may_draw(self) -> bool:
        """Whether `loss_and_gradients` may draw random numbers; True until the opposite is known."""
        return (self._counter.counted.draws if self._draws is None else self._draws) is not False

    def _lent(self, *names: str) -> AbstractContextManager[object]:
        others = self._counter.counted.others is not False
        return borrowed(self._seed, *names, device=self.device, others=others)

    def _loss_and_gradients(self, batch: Batch) -> tuple[float, list[Tensor]]:
        counter = self._counter
        loss, gradients = differentiate(self._model, counter.loss, self._trainable, batch, counter.precision)
        return loss.item(), separate(gradients)

    def try_out(self) -> None:
        """Compute the loss of the first batch, so that errors are reported before a run.

        Buffers may change, so do not train this replica afterwards. Raise UsageError for weights
        without values. A model that is held in parts has already been tried out, when it was made.
        """
        if any(tensor.is_meta for tensor in (*self._model.parameters(), *self._model.buffers())):
            found = "weights without values, on torch's meta device"
            raise UsageError("model", found, "a model made on the CPU; or numerics: none")
        if self._deferred is None:
            with borrowed(0, device=self.device, others=True), forward_in(self._counter.precision, self.device):
                self._counter.counted.loss_sums = try_out(self._model, self._counter.loss, self.first_batch())

    def apply(self, gradients: Sequence[Tensor], batches: int = 1, of: int = 1) -> None:
        """Take one optimizer step with *gradients*, which are in the order of *parameters* and are
        not changed.

        A step of a server without a barrier takes *batches* of the *of* batches that its ranks make
        per step of theirs: its schedule moves on when there are *of*.

        If the workload has a *clip_norm* and the joint Euclidean norm of the gradients exceeds it,
        they are first scaled down to that norm.
        """
        self._check_shapes("gradients", gradients)
        self._take_step(self._optimizer, self._trainable, gradients, self._counter.clip_norm, batches, of)

    def _take_step(self, optimizer: torch.optim.Optimizer, trainable: list[nn.Parameter], gradients: Sequence[Tensor],
                   clip_norm: float | None = None, batches: int = 1, of: int = 1) -> None:  # fmt: skip
        self.note_work("apply")
        self.steps_taken += 1
        self.learning_rate = learning_rate_of(optimizer)
        if self.device != HOST:
            gradients = [gradient.to(self.device) for gradient in gradients]
        take_step(optimizer, trainable, gradients, clip_norm, self.steps_taken, batches, of)

    def load(self, parameters: Sequence[Tensor]) -> None:
        """Overwrite the weights with *parameters*. Raise ValueError if their number or shapes
        differ.
        """
        self._check_shapes("parameters", parameters)
        self.loads += 1
        for live, given in zip(self.parameters, parameters, strict=True):
            live.copy_(given)

    def gradient_cost(self, batch: Batch) -> Cost:
        """Return the cost of `loss_and_gradients(batch)`. It is counted once per batch shape on a
        separate model.

        The FLOPs are those of matrix products, convolutions, attention and recurrent layers in both
        passes. The bytes are those that all operators read and write, without a cache and without
        fusion (simcluster.workloads.operator_costs).
        """
        return self._counter.gradient(batch)

    def apply_cost(self) -> Cost:
        """Return the cost of `apply`, with one FLOP per element that an operator writes."""
        return self._counter.apply(self._trainable if self._deferred is None else self.shapes)

    def part(self, places: Sequence[int]) -> ParameterPart:
        """Return the part with the parameters at indices *places* and their share of the
        optimizer's state.
        """
        self.is_parted = True
        trainable, optimizer = [self._trainable[place] for place in places], self._optimizer_of(places)
        return self._part(places, [self._live[place] for place in places], trainable, optimizer)

    def pieces(self, vectors: Sequence[Tensor]) -> ParameterPart:
        """Return a part with the parameters *vectors*, which are pieces of the replica's
        parameters. Its optimizer is separate from the replica's.

        The optimizer must work elementwise, as SGD and AdamW do, since it sees vectors and not the
        parameters' shapes.
        """
        trainable = [nn.Parameter(vector) for vector in vectors]
        return self._part(
            range(len(vectors)), vectors, trainable, self._counter.make_optimizer(trainable), sharded=True
        )

    def _part(
        self,
        places: Sequence[int],
        values: Sequence[Tensor],
        trainable: list[nn.Parameter],
        optimizer: torch.optim.Optimizer,
        *,
        sharded: bool = False,
    ) -> ParameterPart:
        """Return the ParameterPart of *trainable*; *values* are their live values."""
        counted = self._counter.part(trainable)
        step = partial(self._take_step, optimizer, trainable)
        separate = None if optimizer is self._stepper else optimizer
        return ParameterPart(
            places, values, self._counter.clip_norm, step, counted, optimizer=separate, sharded=sharded
        )

    def layers(self) -> Layers:
        """Return the layers of the live model. Every call returns the same layers.

        Raise UsageError if the layers are unknown.

        A forward and a backward pass through all layers give the same bits as `loss_and_gradients`,
        unless the model draws random numbers, since each layer draws from a separate stream.
        """
        check_layered(self._counter.loss, self._samples)
        if self._layers is None:
            make = partial(self._make_layer, precision=self._counter.precision)
            self._layers = Layers(self._model, self._trainable, self._counter.loss, self._drawing, make)
        return self._layers

    def _drawing(self, layer: int, *, alike: bool = False) -> AbstractContextManager[object]:
        """Return a context that lends the generators to *layer*; if *alike*, all ranks draw the same."""
        if self._counter.counted.draws is False:
            return nullcontext()
        runs = self._layer_runs[layer] = self._layer_runs.get(layer, -1) + 1
        return self._lent("layers", "all" if alike else str(self._rank), f"{layer}/{runs}")

    def tensor_shard(self, size: int | None = None) -> TensorShard:
        """Return this rank's tensor-parallel shard of the model, split over groups of *size* ranks, by default over
        all ranks. See `simcluster.workloads.layers.tensor_shard`.

        Raise UsageError if the model cannot be split over *size* ranks.
        """
        check_layered(self._counter.loss, self._samples)
        self.is_parted = True
        size = size or len(self.batch_sizes)
        share = self._share(size)
        live, optimizer = [p.detach() for p in share.parameters], self._counter.make_optimizer(share.parameters)
        return self._shard_of(share, lambda: self._part(range(len(live)), live, share.parameters, optimizer), size)

    # The modules of a share draw weights when they are made. These are then overwritten.
    @borrowed(0, others=True)
    def _share(self, size: int) -> ShardModules:
        modules = modules_in_order(self._model)
        if self._deferred is not None:
            try:
                with RefusingWatch():  # type: ignore[no-untyped-call]
                    share = share_of(modules, self._trainable, self._rank % size, size, self._deferred.value)
                self._deferred.fill(share.parameters)
                return share
            except Unrecordable:  # some layer's `tensor_split` reads weights, so the model must be whole
                _ = self.parameters
        return share_of(modules, self._trainable, self._rank % size, size)

    def _shard_of(self, share: ShardModules, part: Callable[[], ParameterPart], size: int) -> TensorShard:
        costs, held = partial(self._counter.shares, size=size), partial(self._counter.held_by_share, size=size)
        make = partial(self._make_layer, precision=self._counter.precision)
        return TensorShard(share, size, part, costs, held, self._counter.loss, self._drawing, make)

    def layer_costs(self, batch: Batch) -> list[LayerCost]:
        """Return the cost of each layer for *batch*, which may be a micro-batch. It is counted once
        per shape on a separate model.
        """
        return self._counter.layers(batch)

    def rows_cost(self, number: int, name: str, rows: int, width: int, ranks: int = 1) -> LayerCost:
        """Return the cost of the module *name* of layer *number* for *rows* rows of *width* numbers;
        that of a rank's share, if it is split over *ranks*.
        """
        return self._counter.rows_cost(number, name, rows, width, ranks)

    def split_dims(self, number: int, name: str, ranks: int) -> dict[str, int]:
        """Return name of a parameter -> the dimension that *ranks* split, for those parameters
        of the module *name* of layer *number* that are split.
        """
        return self._counter.split_dims(number, name, ranks)

    def held(self, batch: Batch) -> list[Held]:
        """Return the bytes that each layer holds between its two passes for *batch*, which may be a
        micro-batch. See `count_held`.
        """
        return self._counter.held(batch)

    @cached_property
    def running(self) -> list[str]:
        """The names of the model's running statistics, the buffers that its forward pass changes in
        training.
        """
        return self._counter.running(self.first_batch()) if floating_buffers(self._model) else []

    def statistics(self) -> list[Tensor]:
        """Return copies of the running statistics."""
        return [self._model.get_buffer(name).detach().clone() for name in self.running]

    def load_statistics(self, values: Sequence[Tensor]) -> None:
        """Overwrite the running statistics with *values*."""
        for name, value in zip(self.running, values, strict=True):
            self._model.get_buffer(name).detach().copy_(value)

    def state(self) -> dict[str, Tensor]:
        """Return copies of all tensors that training changes, under the names "model.<name>" and
        "optimizer.<parameter>.<name>".
        """
        _ = self.parameters
        state = training_state(self._model, self.names, self._trainable, self._optimizer)
        return {name: value.detach().clone() for name, value in state.items()}

    def checkpoint_state(self, places: Sequence[int] | None = None) -> dict[str, Any]:
        """Return the state of the "model" and the "optimizer", and for "layers" the number of draws
        of each layer. Nothing is copied. If *places* is set, only the parameters at these indices
        are included.
        """
        kept = set(range(len(self.parameters)) if places is None else places)
        parameters = {name: self._trainable[place] for place, name in enumerate(self.names) if place in kept}
        return {
            "model": model_state(self._model, parameters),
            "optimizer": optimizer_state(self._optimizer_of(sorted(kept)), parameters),
            "layers": self._layer_runs,
        }

    def load_checkpoint_state(self, state: dict[str, Any]) -> None:
        """Restore *state*, which `checkpoint_state` returned, in place.

        If the model is held in parts, each part is restored when it is first needed.
        """
        self._load_saved(state["model"], state["optimizer"])
        self._layer_runs = dict(state["layers"])
