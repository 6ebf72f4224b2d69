"""One rank's shard of a tensor-parallel model: the rank's share of each split layer, and the whole
of all other layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property, partial

import torch
from torch import Tensor, nn

from simcluster.compute import is_on_host
from simcluster.transport import Cost
from simcluster.workloads.data.samples import Batch
from simcluster.workloads.layers.activations import Held
from simcluster.workloads.layers.layer_costs import LayerCost, count_modules
from simcluster.workloads.layers.layers import Layer
from simcluster.workloads.layers.part import ParameterPart
from simcluster.workloads.layers.tensor_split import ParameterCut, SplitLayer, split_layers
from simcluster.workloads.operator_costs import kind_of
from simcluster.workloads.precision import Precision
from simcluster.workloads.steps import Loss


@dataclass
class ShardModules:
    """The modules of one rank's shard, before they become layers.

    *modules* are in order of application, without the sums over ranks between them. *parameters*
    lists the parameters in the model's order, each whole or split; *cuts* maps the index of each
    split parameter to its ParameterCut. Each of *layers* is (number of the whole module, number of
    the split module, the SplitLayer), with None for what a layer lacks.
    """

    modules: list[nn.Module] = field(default_factory=list)
    parameters: list[nn.Parameter] = field(default_factory=list)
    cuts: dict[int, ParameterCut] = field(default_factory=dict)
    layers: list[tuple[int | None, int | None, SplitLayer | None]] = field(default_factory=list)

    def of(self, number: int) -> list[tuple[int, nn.Parameter]]:
        """Return (index in *parameters*, parameter) for the trainable parameters of module
        *number*.
        """
        own = {id(parameter) for parameter in self.modules[number].parameters()}
        return [(place, parameter) for place, parameter in enumerate(self.parameters) if id(parameter) in own]

    def count(self, loss: Loss, batch: Batch, name: str, precision: Precision = "f32") -> list[ShardedLayerCost]:
        """Return the cost of each layer, and that of the loss at the end.

        A partial sum over ranks is as large as the total.
        """
        trainable = [[parameter for _, parameter in self.of(number)] for number in range(len(self.modules))]
        costs, kind = count_modules(self.modules, trainable, loss, batch, name, precision)[1], kind_of(name, "gradient")
        free = LayerCost(Cost(0.0, kind=kind), Cost(0.0, kind=kind), 0)
        found = []
        for whole, shard, split in self.layers:
            join = free
            if shard is not None and split is not None:
                join = _join_cost(split, costs[shard].output_bytes, kind)
            first, second = (free if number is None else costs[number] for number in (whole, shard))
            found.append(ShardedLayerCost(first, second, join))
        return [*found, ShardedLayerCost(costs[-1], free, free)]


def _join_cost(split: SplitLayer, size_bytes: int, kind: str) -> LayerCost:
    """Return the cost of adding the bias and the residual of *split*, and of their gradients.

    An addition reads two tensors of *size_bytes* and writes one.
    """
    bias, residual = int(split.bias is not None), int(split.residual)
    forward = Cost(0.0, 3.0 * (bias + residual) * size_bytes, bias + residual, kind)
    backward = Cost(0.0, (1.0 * bias + 3.0 * residual) * size_bytes, bias + residual, kind)
    return LayerCost(forward, backward, size_bytes)


class SumTerm(nn.Module):
    """The end of a rank's share: its term of the sum over ranks, in float32 if it is bfloat16."""

    def forward(self, term: Tensor) -> Tensor:
        return term.float() if term.dtype is torch.bfloat16 else term


def share_of(
    layers: Sequence[nn.Module],
    trainable: Sequence[nn.Parameter],
    rank: int,
    size: int,
    value_of: Callable[[Tensor], Tensor] = torch.detach,
) -> ShardModules:
    """Return *rank*'s share, among *size* ranks, of a model with *layers*.

    Raise UsageError if it cannot be split.

    *value_of* returns the values of a parameter that is split; these values are copied.
    """
    share = ShardModules(parameters=list(trainable))
    places = {id(parameter): place for place, parameter in enumerate(trainable)}
    for part in split_layers(layers, size):
        here = len(share.modules)
        if not isinstance(part, SplitLayer):
            share.modules.append(part)
            share.layers.append((here, None, None))
            continue
        work = nn.Sequential(part.work, SumTerm())
        share.modules += [work] if part.before is None else [part.before, work]
        share.layers.append((None, here, part) if part.before is None else (here, here + 1, part))
        if not is_on_host(trainable[0]):
            part.work.to(trainable[0].device)
        own = dict(part.work.named_parameters())
        for name, cut in part.cuts.items():
            with torch.no_grad():
                own[name].copy_(cut.part(value_of(cut.full), rank, size))
            place = places.get(id(cut.full))
            if place is None:
                own[name].requires_grad_(False)
            else:
                share.parameters[place], share.cuts[place] = own[name], cut
    share.modules.append(nn.Identity())  # computes the loss, since a split layer cannot
    return share


@dataclass(frozen=True)
class ShardedLayerCost:
    """The costs of a ShardedLayer: those of its whole module, of its shard, and of its join."""

    whole: LayerCost
    shard: LayerCost
    join: LayerCost


@dataclass(frozen=True)
class ShardedLayer:
    """One layer of the model: y = whole(x), or y = [x +] sum over ranks of shard([whole](x)) [+ bias]."""

    whole: Layer | None
    shard: Layer | None
    bias: nn.Parameter | None
    bias_place: int | None
    residual: bool

    def join(self, stream: Tensor, total: Tensor) -> Tensor:
        """Return y from x and the sum over ranks.

        Every rank adds the bias to the sum, not to its share, so the bias counts once.
        """
        if self.bias is not None and not total.is_meta:
            total = total + self.bias.detach()
        return stream + total if self.residual else total

    def unjoin(self, gradient: Tensor, through: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        """Return the gradients with respect to (x, the bias). *gradient* is the gradient with
        respect to y, *through* the gradient with respect to x that has passed through the layer.
        """
        bias = None if self.bias_place is None else gradient.flatten(0, -2).sum(0)
        return (gradient + through if self.residual and through is not None else through), bias


class TensorShard:
    """One rank's shard of the model; `replica.tensor_shard()` makes it.

    *pieces* are the layers in order; *last* computes the loss. *parameters* are all parameters, in
    the order of `Replica.parameters`. Those with an index in *cuts* are this rank's shares; the
    others are whole.
    """

    def __init__(
        self,
        share: ShardModules,
        size: int,
        part: Callable[[], ParameterPart],
        costs: Callable[[Batch], list[ShardedLayerCost]],
        held: Callable[[Batch], list[Held]],
        loss: Loss,
        drawing: Callable[..., AbstractContextManager[object]],
        layer: Callable[..., Layer] = Layer,
    ) -> None:
        self._make_part = part
        self.parameters = list(share.parameters)
        self.cuts = share.cuts
        self.costs = costs
        self.held = held
        self._size = size
        trainable = [share.of(number) for number in range(len(share.modules))]
        places = {id(parameter): place for place, parameter in enumerate(share.parameters)}

        def of(number: int | None, *, alike: bool) -> Layer | None:
            if number is None:
                return None
            return layer(
                [share.modules[number]],
                number,
                trainable[number],
                loss=loss if number == len(share.modules) - 1 else None,
                wants_input_gradient=any(trainable[:number]),
                drawing=partial(drawing, alike=alike),
                key=("tensor", size, number),
            )

        self.pieces = []
        for whole, shard, split in share.layers:
            bias = None if split is None else split.bias
            place = None if bias is None else places.get(id(bias))
            # All ranks compute the whole layer, so they must also drop the same.
            pair = of(whole, alike=True), of(shard, alike=split is not None and split.alike)
            self.pieces.append(ShardedLayer(*pair, bias, place, split is not None and split.residual))
        last = of(len(share.modules) - 1, alike=True)
        assert last is not None
        self.last = last

    @cached_property
    def part(self) -> ParameterPart:
        """The part with all *parameters* and their optimizer state."""
        return self._make_part()

    def whole(self, place: int, parts: Sequence[Tensor]) -> Tensor:
        """Join the *parts* of all ranks into the parameter at index *place*.

        A parameter that is not split has one part.
        """
        if place not in self.cuts:
            return parts[0]
        cut = self.cuts[place]
        whole = torch.empty(cut.full.shape, dtype=parts[0].dtype, device=parts[0].device)
        for rank, part in enumerate(parts):
            cut.put(whole, part, rank, self._size)
        return whole
