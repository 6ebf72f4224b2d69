"""The costs of training the model of a workload.

Each cost is counted once for all replicas of the workload, on a separate model.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from simcluster.compute import to_host
from simcluster.errors import Problem
from simcluster.process.generators import copied
from simcluster.transport import Cost
from simcluster.workloads.costs.memory import MemoryBytes, count_memory
from simcluster.workloads.data.samples import Batch, Samples
from simcluster.workloads.global_rng import borrowed
from simcluster.workloads.layers.activations import Held, count_held
from simcluster.workloads.layers.experts import ExpertLayer
from simcluster.workloads.layers.layer_costs import LayerCost, count_layers, count_module
from simcluster.workloads.layers.layers import check_layered, modules_in_order
from simcluster.workloads.layers.part import PartCost, count_part
from simcluster.workloads.layers.tensor_shard import ShardedLayerCost, ShardModules, share_of
from simcluster.workloads.layers.tensor_split import split_alone
from simcluster.workloads.operator_costs import elementwise_cost, kind_of, matrix_cost
from simcluster.workloads.optimizers import MakeOptimizer
from simcluster.workloads.precision import Precision
from simcluster.workloads.running import running_buffers
from simcluster.workloads.steps import Loss, differentiate, outputs_of, rehearsed, trainable_of

T = TypeVar("T")


@dataclass
class WorkloadFacts:
    """Facts that are found once for all replicas of a workload. None means that a fact is not known
    yet.

    *found*: key -> a counted cost. *draws*: whether the model draws random numbers; *others*:
    whether it draws them from Python's or numpy's generators. *in_parts*: whether the model can be
    made and used part by part. *wrong_layers*: the problem with the model's layers, if any.
    *loss_sums*: whether the loss is a sum over samples.
    """

    found: dict[Hashable, Any] = field(default_factory=dict)
    draws: bool | None = None
    others: bool | None = None
    in_parts: bool | None = None
    wrong_layers: Problem | None = None
    loss_sums: bool = False


@dataclass(eq=False)
class Counter:
    """The parts of a workload that make and train a model, and the costs of their work.

    *name* is the workload's name, for `Cost.kind`. It is empty if no profile can refer to the
    workload.
    """

    make_model: Callable[[], nn.Module]
    loss: Loss
    make_optimizer: MakeOptimizer
    clip_norm: float | None
    name: str
    counted: WorkloadFacts
    precision: Precision

    def gradient(self, batch: Batch) -> Cost:
        """Return the cost of computing the loss and gradient of *batch*; the first time, note
        whether the model draws random numbers.
        """

        def count() -> Cost:
            model, like = self.a_model(), self.like_batch(batch)
            trainable = [parameter for _, parameter in trainable_of(model)]
            work = partial(differentiate, model, self.loss, trainable, like, self.precision)
            before = copied() if self.counted.draws is None else None
            cost = matrix_cost(work, kind_of(self.name, "gradient"))
            if before is not None:
                self.note_draws(before)
            return cost

        return self.once(("gradient", *_shapes(batch)), "the model and its loss", count)

    def note_draws(self, before: tuple[object, ...]) -> None:
        """Note whether the model has drawn random numbers since `copied` returned *before*."""
        *others, of_torch = copied()
        self.counted.others = others != [*before[:-1]]
        self.counted.draws = self.counted.others or of_torch != before[-1]

    def apply(self, parameters: Sequence[Tensor]) -> Cost:
        """Return the cost of an optimizer step on *parameters*, which are all parameters of the
        model. The step is taken on copies.
        """

        def count() -> Cost:
            *_, step = rehearsed([self.like(p) for p in parameters], self.make_optimizer, self.clip_norm)
            return elementwise_cost(step, kind_of(self.name, "apply"))

        return self.once("apply", "the optimizer", count)

    def part(self, parameters: Sequence[Tensor]) -> PartCost:
        """Return the costs of a `ParameterPart` with these *parameters*. See `count_part`."""
        key, kind = ("part", *((p.shape, p.dtype) for p in parameters)), kind_of(self.name, "apply")
        making = self.make_optimizer, self.clip_norm, kind
        return self.once(key, "the optimizer", lambda: count_part([self.like(p) for p in parameters], *making))

    def layers(self, batch: Batch) -> list[LayerCost]:
        """Return the cost of each layer for a (micro-)batch of this shape."""
        check_layered(self.loss, batch)
        if self.counted.draws is None:
            self.gradient(batch)
        how = self.name, self.precision
        return self._of_layers("layers", batch, lambda like: count_layers(self.a_model(), self.loss, like, *how))

    def shares(self, batch: Batch, size: int) -> list[ShardedLayerCost]:
        """Return the costs of each layer of a tensor-parallel shard, for *size* ranks and a batch
        of this shape.
        """
        check_layered(self.loss, batch)
        if self.counted.draws is None:
            self.gradient(batch)
        key, how = ("shares", size), (self.name, self.precision)
        return self._of_layers(key, batch, lambda like: self.share(size).count(self.loss, like, *how))

    def rows_cost(self, number: int, name: str, rows: int, width: int, ranks: int = 1) -> LayerCost:
        """Return the cost of the module *name* of layer *number* for *rows* rows, which are as wide
        as *width*; that of a rank's share, if it is split over *ranks*.

        It is linear in the rows, so it is counted for 2 and 3 of them. (For one, torch copies less.)
        """

        def count(module: nn.Module, like: Tensor) -> list[LayerCost]:
            return [count_module(module, self.like(like.new_empty(n, width)), self.name) for n in (2, 3)]

        def known() -> list[LayerCost]:
            model = self.a_model()
            module, like = modules_in_order(model)[number].get_submodule(name), next(model.parameters())
            own = module if ranks == 1 else split_alone(module, ranks).work
            return self.once(("alike", _structure(own), width), "the model's experts", lambda: count(own, like))

        two, three = self.once(("rows", number, name, width, ranks), "the model's experts", known)
        forward, backward = _at(rows, two.forward, three.forward), _at(rows, two.backward, three.backward)
        return LayerCost(forward, backward, two.output_bytes // 2 * rows)

    def split_dims(self, number: int, name: str, ranks: int) -> dict[str, int]:
        """Return name of a parameter -> the dimension that *ranks* split, for those parameters
        of the module *name* of layer *number* that are split.
        """

        def find() -> dict[str, int]:
            module = modules_in_order(self.a_model())[number].get_submodule(name)
            names = {id(parameter): own for own, parameter in module.named_parameters()}
            return {names[id(cut.full)]: cut.dim for cut in split_alone(module, ranks).cuts.values()}

        return self.once(("split", number, name, ranks), "the model's experts", find)

    def held(self, batch: Batch) -> list[Held]:
        """Return the bytes that each layer holds for a (micro-)batch of this shape. See
        `count_held`.
        """
        check_layered(self.loss, batch)
        return self._of_layers(
            "held", batch, lambda like: count_held(modules_in_order(self.a_model()), self.loss, like, self.precision)
        )

    def held_by_share(self, batch: Batch, size: int) -> list[Held]:
        """Return the bytes that each module of a tensor-parallel shard holds, for *size* ranks and
        a batch of this shape. See `count_held`.
        """
        key = "held", size
        how = self.loss, self.precision
        return self._of_layers(key, batch, lambda like: count_held(self.share(size).modules, how[0], like, how[1]))

    def _of_layers(self, key: Hashable, batch: Batch, count: Callable[[Batch], T]) -> T:
        """Return the result of *count* for a (micro-)batch of this shape. It is called once per
        *key* and shape.
        """
        return self.once((key, *_shapes(batch)), "the model's layers", lambda: count(self.like_batch(batch)))

    def share(self, size: int) -> ShardModules:
        """Return the share of rank 0 among *size* tensor-parallel ranks; other ranks' shares have
        the same shapes.
        """
        model = self.a_model()
        return share_of(modules_in_order(model), [p for _, p in trainable_of(model)], 0, size)

    def memory(self, batch: Batch, data: Iterable[Samples]) -> MemoryBytes:
        """Return the memory that training with batches of this shape takes. See `count_memory`.

        *data* must be the same in all calls.
        """

        def count() -> MemoryBytes:
            like = self.like_batch(batch)
            return count_memory(self.a_model(), self.loss, self.make_optimizer, like, data, self.precision)

        return self.once(("memory", *_shapes(batch)), "the model and its loss", count)

    def running(self, batch: Batch) -> list[str]:
        """Return the names of the model's running statistics."""
        return self.once("running", "the model", lambda: running_buffers(self.a_model(), self.like_batch(batch)))

    def once(self, key: Hashable, what: str, work: Callable[[], T]) -> T:
        """Return the result of *work*, which runs once per *key*; *what* names the work in errors."""
        if key not in self.counted.found:
            self.counted.found[key] = self.run(what, work)
        found: T = self.counted.found[key]
        return found

    def run(self, what: str, work: Callable[[], T]) -> T:
        """Run *work* with borrowed random generators and return its result; *what* names the work
        in errors.
        """
        with borrowed(0, others=True):
            return work()

    def draws_when_judged(self, samples: Samples) -> bool:
        """Return whether evaluating *samples* draws random numbers, as found by evaluating the
        first sample.
        """

        def judge() -> bool:
            before = copied()
            with torch.no_grad():
                self.loss(outputs_of(self.a_model().eval(), samples.first(1).inputs), samples.first(1).targets)
            return copied() != before

        return self.counted.draws is not False and self.once("judge", "the model on held-out samples", judge)

    def a_model(self) -> nn.Module:
        """Return a new model, which no replica uses. Its experts take equal numbers of tokens."""
        model = self.make_model().train()
        for module in model.modules():
            if isinstance(module, ExpertLayer):
                module.spreads = True
        return model

    def like(self, tensor: Tensor) -> Tensor:
        """Return a tensor like *tensor* on the host, where work is counted."""
        return to_host(tensor)

    def like_batch(self, batch: Batch) -> Batch:
        return Batch(*batch.each(self.like), batch.step)


def _shapes(batch: Batch) -> tuple[Hashable, ...]:
    return tuple((tensor.shape, tensor.dtype) for tensor in batch.tensors)


def _at(rows: int, two: Cost, three: Cost) -> Cost:
    """Return the cost of *rows* rows, linear in those of *two* and of *three*."""
    if not rows:
        return Cost(0.0, kind=two.kind)
    flops, memory_bytes = three.flops - two.flops, three.memory_bytes - two.memory_bytes
    return replace(two, flops=two.flops + (rows - 2) * flops, memory_bytes=two.memory_bytes + (rows - 2) * memory_bytes)


def _structure(module: nn.Module) -> Hashable:
    """Return a value that is equal for modules of equal cost: the classes, settings and shapes inside."""
    settings = ({key: value for key, value in vars(one).items() if key[0] != "_"} for one in module.modules())
    shapes = tuple((parameter.shape, parameter.dtype) for parameter in module.parameters())
    return tuple(map(type, module.modules())), repr([*settings]), shapes
