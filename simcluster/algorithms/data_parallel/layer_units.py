"""A model's parameters as one vector per layer: a unit that is summed and sent as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from simcluster.errors import UsageError
from simcluster.workloads.replica import Replica


@dataclass(frozen=True)
class LayerUnit:
    """The parameters of one layer, at indices *places* of `Replica.parameters`.

    Their gradients are complete after *layer*'s backward pass.
    """

    number: int
    layer: int
    places: tuple[int, ...]
    size_bytes: int


def cut_into_units(replica: Replica) -> list[LayerUnit]:
    """Return one unit per layer with parameters; a shared parameter belongs to the first layer that uses it.

    Raise UsageError if a layer's parameters differ in dtype, since they cannot form one vector.
    """
    layers, shared = replica.layers(), replica.layers().shared()
    units: list[LayerUnit] = []
    for number, layer in enumerate(layers):
        places = [place for place in layer.parameters if number == min(shared.get(place, [number]))]
        if places:
            dtypes = sorted({str(replica.shapes[place].dtype) for place in places})
            if len(dtypes) > 1:
                raise UsageError(layer.name, f"parameters of {', '.join(dtypes)}", "one dtype per layer")
            size_bytes = sum(replica.shapes[place].nbytes for place in places)
            units.append(LayerUnit(len(units), number, tuple(places), size_bytes))
    return units


def units_of_layers(replica: Replica, units: Sequence[LayerUnit]) -> list[list[LayerUnit]]:
    """Return, for each layer, the units that it uses."""
    unit_of = {place: unit for unit in units for place in unit.places}
    used = [dict.fromkeys(unit_of[place].number for place in layer.parameters) for layer in replica.layers()]
    return [[units[number] for number in numbers] for numbers in used]


def in_order(units: Sequence[LayerUnit], tensors: Mapping[int, Tensor]) -> list[Tensor]:
    """Return the values of *tensors*, which are keyed by index in `Replica.parameters`, in the
    order of these indices.
    """
    return [tensors[place] for place in sorted(place for unit in units for place in unit.places)]
