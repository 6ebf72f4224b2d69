"""The layout of expert parallelism: which rank holds which experts, and the layers that it runs."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor

from simcluster.algorithms.facts import Settings, StateShares
from simcluster.algorithms.model_parallel.expert_load import shares_of
from simcluster.algorithms.model_parallel.parallel_layout import LayoutPlace, ParallelLayout, counts_of
from simcluster.algorithms.model_parallel.pipeline_plan import PipelinePlan
from simcluster.errors import Problem, UsageError
from simcluster.workloads import Batch, Replica
from simcluster.workloads.data.streams import micro_batches as cut
from simcluster.workloads.layers.experts import ExpertLayer
from simcluster.workloads.layers.layers import Layer
from simcluster.workloads.layers.part import ParameterPart
from simcluster.workloads.layers.stages import cut_into_stages
from simcluster.workloads.layers.tensor_shard import ShardedLayer, ShardedLayerCost, TensorShard
from simcluster.workloads.layers.tensor_split import can_split

T = TypeVar("T")


@dataclass(frozen=True)
class ExpertPiece:
    """An expert layer on one rank: its *norm* and *router*, and the rank's own *experts*, by number.

    *number* is that of the layer.
    """

    number: int
    norm: Layer
    router: Layer
    experts: dict[int, Layer]
    whole: ExpertLayer


class ExpertLayout:
    """The place of *rank* among *size* ranks that divide the experts of *replica*'s model, and its layers if
    *layout* has a pipeline or tensor direction. A batch has *micro_batches*, by default one per stage.

    *number* counts the rank's replica of the model, and *peers* are the numbers of the replicas that divide
    experts with it. *sizes* has the samples of each replica. *joins*: whether a replica has several ranks.
    """

    def __init__(
        self, replica: Replica, rank: int, size: int, layout: ParallelLayout | None, micro_batches: int | None = None
    ) -> None:
        self._replica = replica
        self.layers = replica.layers()
        modules = self.layers.modules
        self.wholes = {number: module for number, module in enumerate(modules) if isinstance(module, ExpertLayer)}
        if not self.wholes or len(modules) - 1 in self.wholes:
            found = "layers " + ", ".join(dict.fromkeys(type(module).__name__ for module in modules))
            expected = "a layer of experts before the last layer, as in mnist_moe, or in gpt with `experts`"
            raise UsageError("workload", found, expected)
        self.experts = math.gcd(*(len(module.experts) for module in self.wholes.values()))
        self.counts = counts_of(layout, size, self.experts)
        self.expert, self.tensor = self.counts["expert"], self.counts["tensor"]
        self.joins = self.counts["pipeline"] * self.tensor > 1
        self.micro_batches = micro_batches or self.counts["pipeline"]
        self._be(rank)
        self.sizes = self._samples_of_replicas(is_default=micro_batches is None)
        self.shard = self._shard()
        self.dims = _of_layout(f"tensor {self.tensor}", self._dims)
        self.plan = self._stages()
        self._shapes: dict[int, Tensor] = {}
        self._costs: dict[int, list[ShardedLayerCost]] = {}  # by samples

    def _be(self, rank: int) -> None:
        self.place = LayoutPlace(rank, self.counts)
        self.stage, self.at_experts = self.place.at("pipeline"), self.place.at("expert")
        first = self.place.at("data") * self.expert
        self.number = first + self.at_experts
        self.peers = range(first, first + self.expert)

    def at(self, rank: int) -> ExpertLayout:
        """Return the place of *rank* in the same layout."""
        _ = self.owners, self.stages_of
        found = copy.copy(self)
        for of_one_rank in ("pieces", "places"):
            found.__dict__.pop(of_one_rank, None)
        found._be(rank)
        return found

    def _samples_of_replicas(self, *, is_default: bool) -> list[int]:
        """Return the number of samples that each replica of the model takes: those of all its ranks."""
        sizes, found = self._replica.batch_sizes, []
        for number in range(self.counts["data"] * self.expert):
            ranks = LayoutPlace(number * self.tensor, self.counts).along("pipeline", "tensor")
            found.append(sum(sizes[rank] for rank in ranks))
        most = math.gcd(*found)
        if most % self.micro_batches:
            expected = f"a divisor of {most}, which divides the samples of each replica of the model"
            default = ", one per stage, the default" if is_default else ""
            raise UsageError("micro_batches", f"{self.micro_batches}{default}", expected)
        return found

    def _shard(self) -> TensorShard | None:
        """Return the shard of this rank; None if tensor ranks share nothing, or only experts."""
        if self.tensor > 1 and self._replica.computes:
            expected = "tensor 1, or numerics: none, since only its time is simulated"
            raise UsageError("layout", f"tensor {self.tensor}", expected)
        if self.tensor == 1 or not can_split(self.layers.modules):
            return None
        shard = _of_layout(f"tensor {self.tensor}", lambda: self._replica.tensor_shard(self.tensor))
        if len(shard.pieces) != len(self.layers):
            found = "layers " + ", ".join(type(module).__name__ for module in self.layers.modules)
            raise UsageError("layout", found, "layers that are split one by one, as in gpt; or tensor 1")
        return shard

    def _stages(self) -> PipelinePlan:
        p, layers = self.counts["pipeline"], self.layers
        if p == 1:
            return PipelinePlan(1, 1, [(0, len(layers))], layers, [])
        if self._replica.running:
            found = f"running statistics: {', '.join(self._replica.running)}"
            raise UsageError("workload", found, "none, or pipeline 1: the ranks of other stages do not have them")
        joined = next(self._replica.joined_batches())
        costs = self._replica.layer_costs(self.at_replica(joined, 0)[0])
        bounds = _of_layout(f"pipeline {p}", lambda: cut_into_stages(costs, p))
        return PipelinePlan(p, 1, bounds, layers, costs)

    def micros(self, batch: Batch) -> list[Batch]:
        """Return the micro-batches of this rank's replica of the model. If the replica has several ranks, *batch*
        is that of all ranks.
        """
        return self.at_replica(batch, self.number) if self.joins else cut(batch, self.micro_batches)

    def at_replica(self, joined: Batch, number: int) -> list[Batch]:
        first, end = sum(self.sizes[:number]), sum(self.sizes[: number + 1])
        return cut(Batch(*joined.each(lambda tensor: tensor[first:end]), joined.step), self.micro_batches)

    def costs(self, micro: Batch) -> list[ShardedLayerCost]:
        """Return the cost of each layer for *micro*. Without a shard, a rank computes the whole of it."""
        samples = len(micro)
        if samples not in self._costs and self.shard is not None:
            self._costs[samples] = self.shard.costs(micro)
        elif samples not in self._costs:
            self._costs[samples] = [ShardedLayerCost(cost, cost, cost) for cost in self._replica.layer_costs(micro)]
        return self._costs[samples]

    def own(self, whole: ExpertLayer, place: int | None = None) -> range:
        """Return the numbers of the experts that the rank at *place* of a group holds; this rank by
        default.
        """
        each = len(whole.experts) // self.expert
        place = self.at_experts if place is None else place
        return range(place * each, (place + 1) * each)

    @property
    def is_last(self) -> bool:
        """Whether this rank's stage computes the loss."""
        return self.stage == self.plan.last

    @property
    def last(self) -> Layer:
        """The layer that computes the loss."""
        return self.layers[-1] if self.shard is None else self.shard.last

    @cached_property
    def pieces(self) -> list[tuple[int, ShardedLayer | ExpertPiece]]:
        """The layers of this rank with their numbers, in order, without the last one if that computes the loss."""
        first, end = self.plan.bounds[self.stage]
        return [(number, self._piece(number)) for number in range(first, end - (self.is_last and self.shard is None))]

    def _piece(self, number: int) -> ShardedLayer | ExpertPiece:
        if number in self.wholes:
            inside, whole = self.layers.inside, self.wholes[number]
            experts = {e: inside(number, f"experts.{e}") for e in self.own(whole)}
            return ExpertPiece(number, inside(number, "norm"), inside(number, "router"), experts, whole)
        if self.shard is not None:
            return self.shard.pieces[number]
        return ShardedLayer(self.layers[number], None, None, None, residual=False)

    @cached_property
    def owners(self) -> dict[int, int]:
        """Index of an expert's parameter in `Replica.parameters` -> the place of its rank in a group."""
        return {
            place: at
            for number, whole in self.wholes.items()
            for known in [self.layers.places_in(number)]
            for at in range(self.expert)
            for e in self.own(whole, at)
            for place in [known[id(parameter)] for parameter in whole.experts[e].parameters() if id(parameter) in known]
        }

    def _dims(self) -> dict[int, int]:
        """Return index of an expert's parameter that tensor ranks share -> the dimension that they split."""
        if self.tensor == 1:
            return {}
        return {
            known[id(whole.experts[e].get_parameter(name))]: dim
            for number, whole in self.wholes.items()
            for known in [self.layers.places_in(number)]
            for e in range(len(whole.experts))
            for name, dim in self._replica.split_dims(number, f"experts.{e}", self.tensor).items()
        }

    @cached_property
    def places(self) -> list[int]:
        """The indices of the parameters that this rank holds, or holds a share of."""
        first, end = self.plan.bounds[self.stage]
        every = {place for layer in self.layers[first:end] for place in layer.parameters}
        return sorted(place for place in every if self.owners.get(place, self.at_experts) == self.at_experts)

    def is_split(self, at: int) -> bool:
        """Return whether each rank of a tensor group has a share of its own of the parameter at index *at*."""
        return at in self.dims or (self.shard is not None and at in self.shard.cuts)

    def shape(self, at: int) -> Tensor:
        """Return a tensor like what a rank holds of the parameter at index *at*."""
        if at not in self.dims:
            return self._replica.shapes[at] if self.shard is None else self.shard.parameters[at]
        if at not in self._shapes:
            whole = self._replica.shapes[at]
            sizes = [n // self.tensor if dim == self.dims[at] else n for dim, n in enumerate(whole.shape)]
            self._shapes[at] = torch.empty(sizes, dtype=whole.dtype, device="meta")
        return self._shapes[at]

    def part(self) -> ParameterPart:
        """Return the part with all that this rank holds."""
        if self.tensor == 1:
            return self._replica.part(self.places)
        return self._replica.pieces([self.shape(at) for at in self.places])

    def holders(self, at: int) -> list[int]:
        """Return the ranks that rank 0 gets the parameter at index *at* from, each with its share."""
        first = LayoutPlace(self.owners.get(at, 0) * self.tensor, self.counts)
        rank = first.along("pipeline")[self.stages_of[at][0]]
        return LayoutPlace(rank, self.counts).along("tensor") if self.is_split(at) else [rank]

    def whole(self, at: int, parts: Sequence[Tensor]) -> Tensor:
        """Return the parameter at index *at*, whose *parts* the `holders` sent. Shares have no values to join."""
        return parts[0] if len(parts) == 1 else torch.empty_like(self._replica.shapes[at])

    @cached_property
    def stages_of(self) -> dict[int, list[int]]:
        """Index in `Replica.parameters` -> the stages that hold the parameter, ascending."""
        return self.plan.holders()

    @property
    def tied(self) -> dict[int, list[int]]:
        """Index in `Replica.parameters` -> the stages that share the parameter, if there are several."""
        return {at: stages for at, stages in self.stages_of.items() if len(stages) > 1}


def _of_layout(found: str, make: Callable[[], T]) -> T:
    """Return what *make* returns. A problem of it becomes one of the layout, which has *found*."""
    try:
        return make()
    except UsageError as error:
        raise UsageError(
            [Problem("layout", f"{found} and {problem.found}", problem.expected) for problem in error.problems]
        ) from None


def expert_cut(replica: Replica, size: int, settings: Settings) -> None:
    layers = ExpertLayout(replica, 0, size, settings["layout"], settings["micro_batches"]).wholes.values()
    shares = [shares_of(settings["load"], len(layer.experts), layer.active) for layer in layers]
    if settings["merge"] and any(len({*of_layer}) > 1 for of_layer in shares):
        expected = "false, or a uniform load, of which it is known how many tokens have several experts on a rank"
        raise UsageError("merge", f"true with load {settings['load']}", expected)


def expert_shares(size: int, settings: Settings) -> StateShares:
    # An estimate: the experts are most of the model, and without a layout they are divided by all ranks.
    layout: Any = settings["layout"] or {"expert": size}
    return StateShares(*[1.0 / math.prod(layout.get(one, 1) for one in ("pipeline", "expert", "tensor"))] * 3)
