"""The parameters of a model in units that are summed, owned and sent together: those of a layer, as one vector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from simcluster.errors import Problem, UsageError
from simcluster.workloads.replica import Replica


@dataclass(frozen=True)
class Unit:
    """*places* in `Replica.parameters`; the gradient of all of them is there when *layer* has gone backward."""

    number: int
    layer: int
    places: tuple[int, ...]
    size_bytes: int


def cut_into_units(replica: Replica) -> list[Unit]:
    """A unit for each layer that has parameters; one that several layers share is with the first of them.

    Raises UsageError for a layer whose parameters have several dtypes: they make no vector.
    """
    layers, shared = replica.layers(), replica.layers().shared()
    units: list[Unit] = []
    for number, layer in enumerate(layers):
        places = [place for place in layer.parameters if number == min(shared.get(place, [number]))]
        if places:
            dtypes = sorted({str(replica.parameters[place].dtype) for place in places})
            if len(dtypes) > 1:
                raise UsageError(Problem(layer.name, f"parameters of {', '.join(dtypes)}", "one dtype a layer"))
            size_bytes = sum(replica.parameters[place].nbytes for place in places)
            units.append(Unit(len(units), number, tuple(places), size_bytes))
    return units


def units_of_layers(replica: Replica, units: Sequence[Unit]) -> list[list[Unit]]:
    """Of each layer, the units whose parameters it uses."""
    unit_of = {place: unit for unit in units for place in unit.places}
    used = [dict.fromkeys(unit_of[place].number for place in layer.parameters) for layer in replica.layers()]
    return [[units[number] for number in numbers] for numbers in used]


def in_order(units: Sequence[Unit], tensors: Mapping[int, Tensor]) -> list[Tensor]:
    """*tensors* by place, in the order of `Replica.parameters`."""
    return [tensors[place] for place in sorted(place for unit in units for place in unit.places)]
