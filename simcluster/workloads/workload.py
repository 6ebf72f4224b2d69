"""A workload, which consists of a model, a loss, data with its partition, and an optimizer.

It makes one Replica per node.

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
from typing import Any, Literal

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
from simcluster.workloads.data.partition import Indices, Partition, deals_each_epoch, dealt_samples, iid, tail_of
from simcluster.workloads.data.samples import Batch, BatchSizes, Samples
from simcluster.workloads.data.shards import shards_for
from simcluster.workloads.global_rng import borrowed
from simcluster.workloads.initial.deferred import DeferredModel
from simcluster.workloads.initial.given_weights import GivenWeights
from simcluster.workloads.optimizers import MakeOptimizer
from simcluster.workloads.precision import loss_in_f32
from simcluster.workloads.recipe import NO_RECIPE, TrainingRecipe
from simcluster.workloads.replica import Replica
from simcluster.workloads.schedules import Made, MakeSchedule, with_schedule
from simcluster.workloads.steps import Loss, own_loss
from simcluster.workloads.timing_replica import TimingReplica

MOST_DEALS = 8
"""Limit on the deals of samples that a workload keeps; an older one is dealt again when needed."""

Numerics = Literal["real", "none"]
"""Whether work is computed ("real") or only timed ("none")."""


@dataclass(frozen=True, eq=False)
class Workload:
    """Everything that training needs, independent of a cluster.

    - *model*: a function without arguments that returns a new `nn.Module`, with initial weights
      drawn from torch's generator.
    - *loss*: a function, a module or the class of a module; loss(model(inputs), targets) returns a
      scalar, the mean over the batch. If None, the model gets every field of a batch as a keyword
      argument, and returns an object with `.loss` or a dict with "loss".
    - *train*, *test*: (inputs, targets), tensors by name, a list or map-style dataset of pairs or
      dicts, or a DataLoader of such a dataset. They are read once: see `as_samples`. *train* may
      also be an iterable set, which is not read into memory: see
      `simcluster.workloads.data.iterable.IterableData`. *test* is held out for `Replica.evaluate`.
    - *optimizer*: a function from a list of parameters to a torch optimizer, such as `sgd(0.1)` or
      `adamw(0.001)`, or to (optimizer, scheduler). *schedule*: a function from that optimizer to a
      scheduler. The scheduler is stepped after each step of the optimizer.
    - *recipe*: the rest of the training: a schedule by name, weight decay, dropout, precision and initial
      weights: see TrainingRecipe. The block `workload` of an experiment may set each of these.
    - *batch_size*: the number of samples per step on each rank. *batch_sizes*: these numbers by
      rank if they differ; *batch_size* is then their greatest common divisor, and shards are in
      proportion to them: see `shards_for`.
    - *partition*: `iid`, `redeal`, `functools.partial(dirichlet, alpha=0.5)`, or a function of your own.
    - *clip_norm*: the limit on the Euclidean norm of all gradients together; None for no limit.
    - *name*: the workload's name in a device's measured profile; an experiment uses the function's name.
    - *weights_bytes*: the size of the weights, if it is known without making the model; a run that
      cannot fit in memory is then refused early.
    - *tokens*: the number of tokens per sample, for a language model.
    - *value_free*: whether the model, the loss and the optimizer do the same work for all values.
      With `numerics: none`, the costs of a small workload are then counted on zeros, which is
      faster than importing torch's compiler.

    Raise UsageError with all problems.
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
    recipe: TrainingRecipe = NO_RECIPE
    joins: int | None = None
    """The number of batches that a step joins, for *recipe.scale*; None is one for each rank."""
    # All replicas share the following: a simulator makes hundreds of replicas in one process.
    _shards: dict[tuple[int, int, int], list[Indices]] = field(default_factory=dict, init=False, repr=False)
    _counted: WorkloadFacts = field(default_factory=WorkloadFacts, init=False, repr=False)
    _sizes: dict[int, BatchSizes] = field(default_factory=dict, init=False, repr=False)
    _last: list[weakref.ref[nn.Module]] = field(default_factory=list, init=False, repr=False)
    _sketches: dict[type[Sketch], Sketch] = field(default_factory=dict, init=False, repr=False)
    tried: dict[tuple[object, ...], int] = field(default_factory=dict, init=False, repr=False)
    """Key -> number of steps of a replica that was tried out before a run. The key contains
    everything that the number depends on.
    """

    def __post_init__(self) -> None:
        if isinstance(self.loss, type) and issubclass(self.loss, nn.Module):
            object.__setattr__(self, "loss", made_loss(self.loss))
        problems = wrong_parts(self.model, self.loss, self.optimizer, self.schedule)
        if self.schedule is not None and self.recipe.schedule != "constant":
            problems.append(Problem("workload.schedule", "a second schedule", "the workload's own, or this one"))
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
        """Return this workload with *name*, or the workload itself if it already has a name.

        Data that has already been read or dealt to ranks is reused.
        """
        return self if self.name else self._twin(name=name, tried=self.tried)

    def with_recipe(self, given: Mapping[str, Any]) -> Workload:
        """Return this workload with the settings *given* in its recipe."""
        recipe = replace(self.recipe, **given)
        if self.schedule is not None and "schedule" in given:
            raise UsageError("workload.schedule", "a second schedule", "the workload's own, or this one")
        return self if recipe == self.recipe else self._twin(recipe=recipe)

    def joining(self, batches: int) -> Workload:
        """Return this workload with a step that joins this number of batches."""
        return self._twin(joins=batches)

    def _twin(self, **changes: Any) -> Workload:
        twin = copy.copy(self)
        twin.__dict__.update({"_counted": WorkloadFacts(), "_sketches": {}, "tried": {}, **changes})
        return twin

    def in_memory(self) -> Workload:
        """Return this workload with its data sets as tensors, so that it can be written to a file."""
        read = {name: getattr(self, f"{name}_samples") for name in ("train", "test") if not self._is_plain(name)}
        twin = copy.copy(self)
        twin.__dict__.update(read)
        return twin

    def _is_plain(self, name: str) -> bool:
        """Return whether the data set called *name* need not be read: it is absent, already in
        tensors, or an iterable set.
        """
        data = getattr(self, name)
        return data is None or is_iterable_only(data) or isinstance(data, (tuple, Mapping, TensorDataset, Samples))

    def with_batches(self, sizes: Sequence[int]) -> Workload:
        """Return this workload with the batch sizes *sizes*, one per rank."""
        return replace(self, batch_size=math.gcd(*sizes), batch_sizes=tuple(sizes))

    def sizes(self, size: int) -> BatchSizes:
        """Return the number of samples per step of each of *size* ranks.

        If all of *batch_sizes* are equal, *size* may be smaller than their number. Raise UsageError
        if they do not fit *size* ranks.
        """
        given = self.batch_sizes
        if size < len(given) and len(set(given)) == 1:
            given = given[:size]
        if given and len(given) != size:
            found, expected = f"{len(self.batch_sizes)} sizes", f"{size}, one per rank"
            raise UsageError("batch_size", found, expected)
        if size not in self._sizes:
            self._sizes[size] = BatchSizes(given or (self.batch_size,) * size)
        return self._sizes[size]

    @cached_property
    def train_samples(self) -> Samples:
        """The data set *train* in memory; for an iterable set, the first samples that it yields."""
        own = self.loss is None
        return self.stream.head if self.stream is not None else as_samples(self.train, "train", own_loss=own)

    @cached_property
    def stream(self) -> IterableData | None:
        """The data set *train* if it is an iterable set, otherwise None."""
        if not is_iterable_only(self.train):
            return None
        largest = max(1, self.batch_size, *self.batch_sizes)
        return IterableData(self.train, "train", largest, own_loss=self.loss is None)

    @cached_property
    def test_samples(self) -> Samples | None:
        """The data set *test* in memory, or None if there is none."""
        if self.test is None:
            return None
        if is_iterable_only(self.test):
            expected = "one in memory, which is evaluated whole: list(itertools.islice(data, 1000))"
            raise UsageError("test", "an iterable set", expected)
        return as_samples(self.test, "test", own_loss=self.loss is None)

    @property
    def digests(self) -> list[str]:
        """Hashes of the training samples and of the held-out samples, for comparisons between
        processes.
        """
        data = [part.digest() for part in (self.train_samples, self.test_samples) if part is not None]
        return [*data, *([self.given_weights.digest()] if self.given_weights is not None else [])]

    @property
    def given_weights(self) -> GivenWeights | None:
        """The file with the initial weights, if the recipe names one."""
        return None if self.recipe.weights is None else GivenWeights(self.recipe.weights)

    def make_optimizer(self, size: int = 1, steps: int | None = None) -> MakeOptimizer:
        """Return the factory of optimizers, each with its scheduler if there is one, for a run of
        *steps* steps on *size* ranks.
        """
        schedule = self.schedule or self.recipe.make_schedule(steps)
        return with_schedule(self.optimizer, schedule, partial(self.recipe.prepare, batches=self.joins or size))

    def made_model(self) -> nn.Module:
        """Return a new model, with the dropout of the recipe."""
        return self.recipe.of_model(self.model)

    @property
    def loss_function(self) -> Loss:
        """The function *loss*, in float32, or if it is None, a function that reads the loss from the
        model's outputs.
        """
        if self.loss is None:
            return own_loss
        return loss_in_f32(self.loss) if self.recipe.precision == "bf16" else self.loss

    @property
    def sketch(self) -> Sketch:
        """Sizes and costs of the model, found without values. All replicas share one sketch."""
        return self._sketch(max(self.batch_sizes, default=self.batch_size))

    def is_small(self, samples: int) -> bool:
        """Return whether the costs of batches of up to *samples* samples can be counted quickly, on
        tensors with values.
        """
        bytes_ = self.weights_bytes if self.value_free else None
        return bytes_ is not None and is_small(bytes_, samples * (self.tokens or 1))

    def _sketch(self, samples: int) -> Sketch:
        """Return the sketch for batches of up to *samples* samples."""
        kind = SmallSketch if self.is_small(samples) else Sketch
        if kind not in self._sketches:
            making = self.made_model, self.loss_function, self.make_optimizer(), self.clip_norm
            with borrowed(0, others=True):
                self._sketches[kind] = kind(*making, self._kind, WorkloadFacts(draws=False), self.recipe.precision)
        return self._sketches[kind]

    def _counter(self, seed: int, size: int = 1, steps: int | None = None) -> Counter:
        making = partial(self._initial_model, seed), self.loss_function, self.make_optimizer(size, steps)
        return Counter(*making, self.clip_norm, self._kind, self._counted, self.recipe.precision)

    @property
    def _kind(self) -> str:
        """The name of this workload's work in a profile, which is measured in float32."""
        return self.name and self.name + (".bf16" if self.recipe.precision == "bf16" else "")

    @property
    def loss_sums(self) -> bool:
        """Whether a trial batch showed that the loss is a sum over samples."""
        return self._counted.loss_sums

    def memory(self, numerics: Numerics = "real") -> MemoryBytes:
        """Return the memory that training takes on one node whatever the algorithm. It is counted
        on a separate model.
        """
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
        """Return the replica of *rank* in a world of *size* ranks, for either *steps* batches or
        *epochs* passes over the data.

        The initial weights depend only on *seed*: they have the same bits on all ranks, in all
        processes and for all hash seeds. The shards depend on *seed* and *size*. Raise UsageError
        if the data cannot be dealt to *size* ranks.

        If *numerics* is "none", return a TimingReplica, which holds no data and computes nothing.
        Raise UsageError for work that depends on values.

        *in_parts*: whether the replica holds no weights until they are needed; each weight then has
        the same bits as in a whole model. A model whose initial weights or layers cannot be
        separated is held whole. *rehearses*: whether the replica is only made for its costs and
        never trained, so that its weights need only have the right distribution.

        *device*: the device that computes. Initial weights are drawn on the host, so they have the
        same bits on all devices.
        """
        if not 0 <= rank < size:
            raise ValueError(f"rank {rank} of {size}")
        steps = self._steps(size, steps, epochs)
        if numerics == "none":
            sizes = self.sizes(size)
            # Pipelines compute a batch that joins those of all ranks.
            sketch = self._sketch(sizes.total)
            if rank == 0:
                self._check_recipe(sketch.model, size, steps)
            return TimingReplica(sketch, self.train_samples, self.test_samples, sizes, steps, rank)
        if any(tensor.is_meta for tensor in self.train_samples.tensors):
            raise UsageError("train", "tensors without values", "values, or numerics: none")
        counter, deferred = self._counter(seed, size, steps), None
        if in_parts:
            counter, deferred = self._in_parts(counter, seed, device, rehearses)
        replica = Replica(
            counter=counter,
            deferred=deferred,
            train=self.stream or self.train_samples,
            shards=partial(self.shards, size, seed),
            test=self.test_samples,
            batch_sizes=self.sizes(size),
            steps=steps,
            seed=seed,
            rank=rank,
            device=device,
        )
        if deferred is not None:
            self._check_recipe(deferred.model, size, steps)
            if self.given_weights is not None:
                replica.begin_with(self.given_weights)
        return replica

    def _check_recipe(self, model: nn.Module, size: int, steps: int) -> None:
        """Raise UsageError if the recipe does not fit *model*, which has no values, or the run."""
        if self.recipe != NO_RECIPE:
            self.make_optimizer(size, steps)([nn.Parameter(torch.zeros(1))])
        if self.given_weights is not None:
            self.given_weights.check(model)

    def _a_batch(self) -> Batch:
        # Clone: a slice would share the storage of all samples, so the bytes of all samples would
        # count.
        train, largest = self.train_samples, max(self.batch_sizes, default=self.batch_size)
        return Batch(*train.each(lambda tensor: tensor[:largest].clone()))

    def _in_parts(
        self, whole: Counter, seed: int, device: torch.device, alike: bool
    ) -> tuple[Counter, DeferredModel | None]:
        """Return (counter, model) of a replica held in parts, or (*whole*, None) if the model
        cannot be separated.
        """
        own = {each.name: getattr(whole, each.name) for each in fields(Counter)}
        own["make_model"] = partial(self._initial_model, seed, loads=False)
        counter = CounterInParts(**own, sketch=lambda: self.sketch)
        if not counter.fits(self._a_batch()):
            return whole, None
        return counter, DeferredModel(counter.make_model, device, alike=alike)

    def shards(self, size: int, seed: int, epoch: int = 0) -> list[Indices]:
        """Return the sample numbers of each of *size* ranks in *epoch*, or an empty list for an
        iterable set, which has no shards.

        Only `redeal` deals differently in later epochs. Raise UsageError if the data cannot be
        dealt to *size* ranks.
        """
        if self.stream is not None:
            return []
        epoch = epoch if deals_each_epoch(self.partition) else 0
        found = self._shards.get((size, seed, epoch))
        if found is None:
            names = ("partition", str(epoch)) if epoch else ("partition",)
            rng = numpy_stream(seed, *names)
            with borrowed(seed, *names, others=True):
                found = shards_for(self.sizes(size), self.partition, self.train_samples.targets.numpy(), rng)
            while len(self._shards) >= MOST_DEALS:
                self._shards.pop(next(iter(self._shards)))
            self._shards[size, seed, epoch] = found
        return found

    def _initial_model(self, seed: int, *, loads: bool = True) -> nn.Module:
        with borrowed(seed, "weights", others=True):
            made = self.made_model()
        if any(last() is made for last in self._last):
            expected = "a new one in each call: each rank has its own"
            raise UsageError("model", "a function that returns the same model again", expected)
        self._last[:] = [weakref.ref(made)] if isinstance(made, nn.Module) else []
        if loads and self.given_weights is not None:
            self.given_weights.load_into(made)
        return made

    def _steps(self, size: int, steps: int | None, epochs: float | None) -> int:
        if (steps is None) == (epochs is None):
            raise UsageError("stop", f"steps={steps} and epochs={epochs}", "one of the two")
        if epochs is not None and self.stream is not None:
            found = f"epochs={epochs} of an iterable set, whose length is unknown"
            raise UsageError("stop", found, "steps")
        if steps is not None:
            if steps < 1:
                raise UsageError("steps", repr(steps), "at least 1")
            return steps
        assert epochs is not None
        if not 0 < epochs < math.inf:
            raise UsageError("epochs", repr(epochs), "a finite number above 0")
        sizes = self.sizes(size)
        samples = dealt_samples(len(self.train_samples), sizes.total // math.gcd(*sizes), tail_of(self.partition))
        steps_per_epoch = -(-samples // sizes.total)
        # Round before taking the ceiling: 0.1 * 30 is slightly more than 3.
        return max(1, math.ceil(round(epochs * steps_per_epoch, 9)))
