"""A model's parameters in units that are summed, owned and sent together: one vector per layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from simcluster.errors import Problem, UsageError
from simcluster.workloads.replica import Replica


@dataclass(frozen=True)
class LayerUnit:
    """Parameters at *places* in `Replica.parameters`; their gradients are complete once *layer* has gone backward."""

    number: int
    layer: int
    places: tuple[int, ...]
    size_bytes: int


def cut_into_units(replica: Replica) -> list[LayerUnit]:
    """Return one unit per layer with parameters; a shared parameter belongs to the first layer that uses it.

    Raises UsageError if the parameters of a layer differ in dtype: they cannot form a vector.
    """
    layers, shared = replica.layers(), replica.layers().shared()
    units: list[LayerUnit] = []
    for number, layer in enumerate(layers):
        places = [place for place in layer.parameters if number == min(shared.get(place, [number]))]
        if places:
            dtypes = sorted({str(replica.shapes[place].dtype) for place in places})
            if len(dtypes) > 1:
                raise UsageError(Problem(layer.name, f"parameters of {', '.join(dtypes)}", "one dtype per layer"))
            size_bytes = sum(replica.shapes[place].nbytes for place in places)
            units.append(LayerUnit(len(units), number, tuple(places), size_bytes))
    return units


def units_of_layers(replica: Replica, units: Sequence[LayerUnit]) -> list[list[LayerUnit]]:
    """Return, for each layer, the units that it uses."""
    unit_of = {place: unit for unit in units for place in unit.places}
    used = [dict.fromkeys(unit_of[place].number for place in layer.parameters) for layer in replica.layers()]
    return [[units[number] for number in numbers] for numbers in used]


def in_order(units: Sequence[LayerUnit], tensors: Mapping[int, Tensor]) -> list[Tensor]:
    """Return *tensors*, keyed by place, in the order of `Replica.parameters`."""
    return [tensors[place] for place in sorted(place for unit in units for place in unit.places)]
