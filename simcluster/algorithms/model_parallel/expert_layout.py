"""The layout of expert parallelism: which rank holds which experts, and the layers that it runs."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from pydantic import PositiveInt

from simcluster.algorithms.facts import Settings, StateShares
from simcluster.algorithms.model_parallel.expert_load import shares_of
from simcluster.errors import UsageError
from simcluster.workloads import Replica
from simcluster.workloads.layers.experts import ExpertLayer
from simcluster.workloads.layers.layers import Layer

ParallelLayout = dict[Literal["data", "expert"], PositiveInt]
"""The numbers of ranks in each direction; their product is the number of all ranks.

The *expert* ranks of a group divide the experts; *data* groups hold the same experts.
"""


def layout_of(layout: ParallelLayout | None, size: int, experts: int) -> tuple[int, int]:
    """Return (data, expert) of *layout* for *size* ranks; by default, as many ranks divide the
    *experts* as can.

    Raise UsageError if they do not fit.
    """
    best = math.gcd(size, experts)
    data, expert = (layout.get("data", 1), layout.get("expert", 1)) if layout else (size // best, best)
    fits = ", or ".join(f"{{data: {size // n}, expert: {n}}}" for n in range(1, best + 1) if best % n == 0)
    if data * expert != size:
        found = f"data {data} x expert {expert} = {data * expert} ranks"
        raise UsageError("layout", found, f"the {size} ranks of the topology: {fits}")
    if experts % expert:
        raise UsageError("layout", f"{expert} ranks for {experts} experts", f"a divisor of {experts}: {fits}")
    return data, expert


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
    """The place of *rank* among *size* ranks that divide the experts of *replica*'s model."""

    def __init__(self, replica: Replica, rank: int, size: int, layout: ParallelLayout | None) -> None:
        self.layers = replica.layers()
        modules = self.layers.modules
        self.wholes = {number: module for number, module in enumerate(modules) if isinstance(module, ExpertLayer)}
        if not self.wholes or len(modules) - 1 in self.wholes:
            found = "layers " + ", ".join(dict.fromkeys(type(module).__name__ for module in modules))
            expected = "a layer of experts before the last layer, as in mnist_moe, or in gpt with `experts`"
            raise UsageError("workload", found, expected)
        self.experts = math.gcd(*(len(module.experts) for module in self.wholes.values()))
        self.data, self.expert = layout_of(layout, size, self.experts)
        self._size = size
        self._be(rank)

    def _be(self, rank: int) -> None:
        self.rank, self.place = rank, rank % self.expert
        self.group = [rank - self.place + place for place in range(self.expert)]
        self.holders = list(range(self.place, self._size, self.expert))

    def at(self, rank: int) -> ExpertLayout:
        """Return the place of *rank* in the same layout."""
        _ = self.owners
        found = copy.copy(self)
        for of_one_rank in ("pieces", "places"):
            found.__dict__.pop(of_one_rank, None)
        found._be(rank)
        return found

    def own(self, whole: ExpertLayer, place: int | None = None) -> range:
        """Return the numbers of the experts that the rank at *place* of a group holds; this rank by
        default.
        """
        each = len(whole.experts) // self.expert
        place = self.place if place is None else place
        return range(place * each, (place + 1) * each)

    @cached_property
    def pieces(self) -> list[Layer | ExpertPiece]:
        """The layers of this rank, in order."""
        inside = self.layers.inside
        return [
            ExpertPiece(
                number, inside(number, "norm"), inside(number, "router"),
                {e: inside(number, f"experts.{e}") for e in self.own(self.wholes[number])}, self.wholes[number],
            ) if number in self.wholes else layer
            for number, layer in enumerate(self.layers)
        ]  # fmt: skip

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

    @cached_property
    def places(self) -> list[int]:
        """The indices of the parameters that this rank holds."""
        every = {place for layer in self.layers for place in layer.parameters}
        return sorted(place for place in every if self.owners.get(place, self.place) == self.place)


def expert_cut(replica: Replica, size: int, settings: Settings) -> None:
    layers = ExpertLayout(replica, 0, size, settings["layout"]).wholes.values()
    shares = [shares_of(settings["load"], len(layer.experts), layer.active) for layer in layers]
    if settings["merge"] and any(len({*of_layer}) > 1 for of_layer in shares):
        expected = "false, or a uniform load, of which it is known how many tokens have several experts on a rank"
        raise UsageError("merge", f"true with load {settings['load']}", expected)


def expert_shares(size: int, settings: Settings) -> StateShares:
    # An estimate: the experts are most of the model, and without a layout they are divided by all ranks.
    layout: Any = settings["layout"] or {"expert": size}
    return StateShares(*[1.0 / layout.get("expert", 1)] * 3)
