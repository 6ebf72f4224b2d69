"""A workload: a model, a loss, data with its partition, and an optimizer. Makes one Replica per node.

def make_workload(*, learning_rate: float = 0.1) -> Workload:
    return Workload(
        model=lambda: nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 2)),
        loss=nn.functional.cross_entropy,
        train=TensorDataset(inputs, labels),
        test=(held_out_inputs, held_out_labels),
        optimizer=sgd(learning_rate),
        batch_size=32,
    )
"""

from __future__ import annotations

import copy
import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from typing import Literal

import torch
from torch import nn
from torch.utils.data import TensorDataset

from simcluster.compute import HOST
from simcluster.errors import Problem, UsageError, raise_all
from simcluster.rng import numpy_stream
from simcluster.workloads.checks import made_loss, wrong_parts
from simcluster.workloads.costs.counter import Counter, WorkloadFacts
from simcluster.workloads.costs.in_parts import CounterInParts
from simcluster.workloads.costs.memory import MemoryBytes
from simcluster.workloads.costs.sketch import Sketch
from simcluster.workloads.costs.small import SmallSketch, is_small
from simcluster.workloads.data.datasets import Data, as_samples, is_iterable_only
from simcluster.workloads.data.iterable import IterableData
from simcluster.workloads.data.partition import Indices, Partition, iid
from simcluster.workloads.data.samples import Batch, BatchSizes, Samples
from simcluster.workloads.data.shards import shards_for
from simcluster.workloads.global_rng import borrowed
from simcluster.workloads.initial.deferred import DeferredModel
from simcluster.workloads.optimizers import MakeOptimizer
from simcluster.workloads.replica import Replica
from simcluster.workloads.schedules import Made, MakeSchedule, with_schedule
from simcluster.workloads.steps import Loss, own_loss
from simcluster.workloads.timing_replica import TimingReplica

Numerics = Literal["real", "none"]
"""Whether work is computed, or only timed."""


@dataclass(frozen=True, eq=False)
class Workload:
    """Everything that training needs, independent of any cluster.

    - *model*: called without arguments, returns a new `nn.Module`; its initial weights come from torch's generator.
    - *loss*: loss(model(inputs), targets) -> scalar, the mean over the batch; a function, or a module or its class.
      None: the model computes it, and returns an object or dict with `.loss`; it gets every field of a batch as a
      keyword argument.
    - *train*, *test*: (inputs, targets), tensors by name, a list or map-style dataset of pairs or dicts, or a
      DataLoader of one; read once, see `as_samples`. *train* may be an iterable set, which stays where it is: see
      `simcluster.workloads.data.iterable.IterableData`. *test* is held out for `Replica.evaluate`.
    - *optimizer*: a function from a list of parameters to a torch optimizer, such as `sgd(0.1)` and `adamw(0.001)`, or
      to (optimizer, scheduler). *schedule*: a function from that optimizer to a scheduler. It is stepped after each
      step of the optimizer.
    - *batch_size*: samples per step on each rank. *batch_sizes*: the same by rank, if they differ; shards are then in
      proportion: the partition deals as many as the sizes have units (*batch_size*, their common divisor), and a rank
      gets several.
    - *partition*: `iid`, `functools.partial(dirichlet, alpha=0.5)`, or your own.
    - *clip_norm*: limit on the Euclidean norm of all gradients together; None for no limit.
    - *name*: the workload's name in a device's measured profile; an experiment uses the function's name.
    - *weights_bytes*: size of the weights, if known without making the model: a run that cannot fit is then refused
      early.
    - *tokens*: tokens per sample, of a language model.
    - *value_free*: whether model, loss and optimizer do the same work whatever the values. With `numerics: none` the
      costs of a small one are then counted on values, which takes less time than to import what does without them.

    Raises UsageError with all problems at once.
    """

    model: Callable[[], nn.Module]
    loss: Loss | None
    train: Data
    optimizer: Callable[[list[nn.Parameter]], Made]
    batch_size: int
    test: Data | None = None
    partition: Partition = iid
    clip_norm: float | None = None
    name: str = ""
    weights_bytes: int | None = None
    tokens: int | None = None
    batch_sizes: tuple[int, ...] = ()
    schedule: MakeSchedule | None = None
    value_free: bool = False
    # Shared by all replicas; a simulator makes hundreds of them in one process.
    _shards: dict[tuple[int, int], list[Indices]] = field(default_factory=dict, init=False, repr=False)
    _counted: WorkloadFacts = field(default_factory=WorkloadFacts, init=False, repr=False)
    _sizes: dict[int, BatchSizes] = field(default_factory=dict, init=False, repr=False)
    _last: list[weakref.ref[nn.Module]] = field(default_factory=list, init=False, repr=False)
    _sketches: dict[type[Sketch], Sketch] = field(default_factory=dict, init=False, repr=False)
    tried: dict[tuple[object, ...], int] = field(default_factory=dict, init=False, repr=False)
    """Steps of the replicas that were tried out before a run, by all that they depend on."""

    def __post_init__(self) -> None:
        if isinstance(self.loss, type) and issubclass(self.loss, nn.Module):
            object.__setattr__(self, "loss", made_loss(self.loss))
        problems = wrong_parts(self.model, self.loss, self.optimizer, self.schedule)
        if self.batch_size < 1:
            problems.append(Problem("batch_size", repr(self.batch_size), "at least 1"))
        if self.clip_norm is not None and not 0 < self.clip_norm < math.inf:
            problems.append(Problem("clip_norm", repr(self.clip_norm), "a finite number above 0, or none"))
        if is_iterable_only(self.train) and self.partition is not iid:
            expected = "none, since an iterable set is dealt out in its own order"
            problems.append(Problem("partition", "a partition of an iterable set", expected))
        for name in ("train_samples", "test_samples"):
            try:
                getattr(self, name)
            except UsageError as error:
                problems.extend(error.problems)
        raise_all(problems)

    def named(self, name: str) -> Workload:
        """Return this workload under *name*, unless it has one; data already read or dealt out is reused."""
        if self.name:
            return self
        twin = copy.copy(self)
        twin.__dict__.update(name=name, _counted=WorkloadFacts(), _sketches={}, tried=self.tried)
        return twin

    def in_memory(self) -> Workload:
        """Return this workload with data sets as the tensors that were read from them, so that it can be written."""
        read = {name: getattr(self, f"{name}_samples") for name in ("train", "test") if not self._is_plain(name)}
        twin = copy.copy(self)
        twin.__dict__.update(read)
        return twin

    def _is_plain(self, name: str) -> bool:
        """Return whether the data called *name* are tensors already, or a set that is not in memory."""
        data = getattr(self, name)
        return data is None or is_iterable_only(data) or isinstance(data, (tuple, Mapping, TensorDataset, Samples))

    def with_batches(self, sizes: Sequence[int]) -> Workload:
        """Return this workload with batches of *sizes*, by rank."""
        return replace(self, batch_size=math.gcd(*sizes), batch_sizes=tuple(sizes))

    def sizes(self, size: int) -> BatchSizes:
        """Return the samples per step of each of *size* ranks. Equal sizes fit a group without some of the ranks."""
        given = self.batch_sizes
        if size < len(given) and len(set(given)) == 1:
            given = given[:size]
        if given and len(given) != size:
            found, expected = f"{len(self.batch_sizes)} sizes", f"{size}, one per rank"
            raise UsageError(Problem("batch_size", found, expected))
        if size not in self._sizes:
            self._sizes[size] = BatchSizes(given or (self.batch_size,) * size)
        return self._sizes[size]

    @cached_property
    def train_samples(self) -> Samples:
        """*train*, in memory; of an iterable set, samples like those that it yields."""
        own = self.loss is None
        return self.stream.head if self.stream is not None else as_samples(self.train, "train", own_loss=own)

    @cached_property
    def stream(self) -> IterableData | None:
        """*train*, if it is an iterable set."""
        if not is_iterable_only(self.train):
            return None
        largest = max(1, self.batch_size, *self.batch_sizes)
        return IterableData(self.train, "train", largest, own_loss=self.loss is None)

    @cached_property
    def test_samples(self) -> Samples | None:
        """*test*, in memory."""
        if self.test is None:
            return None
        if is_iterable_only(self.test):
            expected = "one in memory, which is evaluated whole: list(itertools.islice(data, 1000))"
            raise UsageError(Problem("test", "an iterable set", expected))
        return as_samples(self.test, "test", own_loss=self.loss is None)

    @property
    def digests(self) -> list[str]:
        """Hashes of the samples and of those held out, to compare between processes."""
        return [part.digest() for part in (self.train_samples, self.test_samples) if part is not None]

    @cached_property
    def make_optimizer(self) -> MakeOptimizer:
        """*optimizer*, whose optimizers step their scheduler."""
        return with_schedule(self.optimizer, self.schedule)

    @property
    def loss_function(self) -> Loss:
        """*loss*, or the function that reads it from the model's outputs."""
        return own_loss if self.loss is None else self.loss

    @property
    def sketch(self) -> Sketch:
        """Sizes and costs of the model, found without computing it; one for all replicas."""
        return self._sketch(max(self.batch_sizes, default=self.batch_size))

    def is_small(self, samples: int) -> bool:
        """Return whether the costs of batches of up to *samples* are counted quickly, with values."""
        bytes_ = self.weights_bytes if self.value_free else None
        return bytes_ is not None and is_small(bytes_, samples * (self.tokens or 1))

    def _sketch(self, samples: int) -> Sketch:
        """Return the sketch for batches of up to *samples*."""
        kind = SmallSketch if self.is_small(samples) else Sketch
        if kind not in self._sketches:
            making = self.model, self.loss_function, self.make_optimizer
            with borrowed(0, others=True):
                self._sketches[kind] = kind(*making, self.clip_norm, self.name, WorkloadFacts(draws=False))
        return self._sketches[kind]

    def _counter(self, seed: int) -> Counter:
        make_model = partial(self._initial_model, seed)
        making = make_model, self.loss_function, self.make_optimizer
        return Counter(*making, self.clip_norm, self.name, self._counted)

    @property
    def loss_sums(self) -> bool:
        """Whether the loss was found to be a sum over samples when a batch was tried."""
        return self._counted.loss_sums

    def memory(self, numerics: Numerics = "real") -> MemoryBytes:
        """Return the bytes that training takes on one node, whatever the algorithm; counted on a separate model."""
        train, batch = self.train_samples, self._a_batch()
        data = [train, *([self.test_samples] if self.test_samples is not None else [])]
        counter = self.sketch if numerics == "none" or self._counted.in_parts else self._counter(0)
        return counter.memory(batch, data)

    def replica(
        self,
        rank: int,
        size: int,
        seed: int,
        steps: int | None = None,
        epochs: float | None = None,
        *,
        numerics: Numerics = "real",
        in_parts: bool = False,
        rehearses: bool = False,
        device: torch.device = HOST,
    ) -> Replica:
        """Return the replica of *rank* in a world of *size*, for *steps* batches or for *epochs*.

        The initial weights depend on *seed* alone: rank, process and hash seed change no bit of them. The shards depend
        on *seed* and *size*. Raises UsageError if the data cannot be dealt out to *size* ranks.

        With *numerics* "none", return a TimingReplica, which holds no data and computes nothing; UsageError is then
        raised for work that depends on values.

        *in_parts*: the replica holds no weights until they are needed, each with the bits that it would have had. A
        model whose initial weights or layers cannot be separated is held whole. *rehearses*: it is made for its costs
        and never trained, so weights that it would get have only the same distribution.

        *device*: where the replica computes. The initial weights are drawn on the host, and so have the same bits.
        """
        if not 0 <= rank < size:
            raise ValueError(f"rank {rank} of {size}")
        if numerics == "none":
            steps = self._steps(size, steps, epochs)
            sizes = self.sizes(size)
            sketch = self._sketch(sizes.total)  # of a batch that joins those of all ranks
            return TimingReplica(sketch, self.train_samples, self.test_samples, sizes, steps, rank)
        if any(tensor.is_meta for tensor in self.train_samples.tensors):
            raise UsageError(Problem("train", "tensors without values", "values, or numerics: none"))
        counter, deferred = self._counter(seed), None
        if in_parts:
            counter, deferred = self._in_parts(counter, device, rehearses)
        return Replica(
            counter=counter,
            deferred=deferred,
            train=self.stream or self.train_samples,
            shards=self.shards(size, seed),
            test=self.test_samples,
            batch_sizes=self.sizes(size),
            steps=self._steps(size, steps, epochs),
            seed=seed,
            rank=rank,
            device=device,
        )

    def _a_batch(self) -> Batch:
        # A copy: a slice would share the storage of all samples.
        train, largest = self.train_samples, max(self.batch_sizes, default=self.batch_size)
        return Batch(*train.each(lambda tensor: tensor[:largest].clone()))

    def _in_parts(self, whole: Counter, device: torch.device, alike: bool) -> tuple[Counter, DeferredModel | None]:
        """Return the counter and the model of a replica held in parts; *whole* and None if it cannot be."""
        own = {each.name: getattr(whole, each.name) for each in fields(Counter)}
        counter = CounterInParts(**own, sketch=lambda: self.sketch)
        if not counter.fits(self._a_batch()):
            return whole, None
        return counter, DeferredModel(counter.make_model, device, alike=alike)

    def shards(self, size: int, seed: int) -> list[Indices]:
        """Return the sample numbers of each of *size* ranks; none for an iterable set, which has no shards.

        Raises UsageError if the data cannot be dealt out.
        """
        if self.stream is not None:
            return []
        if (size, seed) not in self._shards:
            rng = numpy_stream(seed, "partition")
            with borrowed(seed, "partition", others=True):
                shards = shards_for(self.sizes(size), self.partition, self.train_samples.targets.numpy(), rng)
            self._shards[size, seed] = shards
        return self._shards[size, seed]

    def _initial_model(self, seed: int) -> nn.Module:
        with borrowed(seed, "weights", others=True):
            made = self.model()
        if any(last() is made for last in self._last):
            expected = "a new one in each call: each rank has its own"
            raise UsageError(Problem("model", "a function that returns the same model again", expected))
        self._last[:] = [weakref.ref(made)] if isinstance(made, nn.Module) else []
        return made

    def _steps(self, size: int, steps: int | None, epochs: float | None) -> int:
        if (steps is None) == (epochs is None):
            raise UsageError(Problem("stop", f"steps={steps} and epochs={epochs}", "one of the two"))
        if epochs is not None and self.stream is not None:
            found = f"epochs={epochs} of an iterable set, whose length is unknown"
            raise UsageError(Problem("stop", found, "steps"))
        if steps is not None:
            if steps < 1:
                raise UsageError(Problem("steps", repr(steps), "at least 1"))
            return steps
        assert epochs is not None
        if not 0 < epochs < math.inf:
            raise UsageError(Problem("epochs", repr(epochs), "a finite number above 0"))
        steps_per_epoch = -(-len(self.train_samples) // sum(self.sizes(size)))
        # Rounded first: 0.1 * 30 is slightly more than 3, but means 3.
        return max(1, math.ceil(round(epochs * steps_per_epoch, 9)))
