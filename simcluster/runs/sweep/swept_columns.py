"""Convert the values of swept keys to columns of a sweep's table, and back to strings.

Quantities become numbers, structured values short labels. The name of a quantity's column is its
key and its unit, such as topology.links.pi5-mini1.bandwidth_bps.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from simcluster import units

if TYPE_CHECKING:
    import pandas as pd


class ColumnUnit(NamedTuple):
    """The unit of columns with names that end in *suffix*, equal to *size* base units."""

    suffix: str
    parse: Callable[[object], float]
    write: Callable[[float], str]
    size: float = 1.0


def _in(unit: str) -> Callable[[float], str]:
    return lambda value: f"{value!r} {unit}".replace(".0 ", " ")


def _size(size_bytes: float) -> str:
    return units.write_size(int(size_bytes))


def _bandwidth(bandwidth_Bps: float) -> str:
    return units.write_bandwidth(bandwidth_Bps) if bandwidth_Bps else "0 bps"


UNITS = (
    ColumnUnit("_bps", units.parse_bandwidth_or_zero, _bandwidth, 1 / 8),
    ColumnUnit("_s", units.parse_latency, units.write_latency),
    ColumnUnit("_bytes", units.parse_size, _size),
    ColumnUnit("_flops_per_s", units.parse_rate, units.write_rate),
    ColumnUnit("_flops", units.parse_amount, _in("FLOP")),
    ColumnUnit("_w", units.parse_power, _in("W")),
    ColumnUnit("_usd_per_h", units.parse_price, _in("USD/h")),
)


def columns_of(key: str, values: Sequence[Any]) -> tuple[str, list[Any]]:
    """Return (name, cells) of the column for the swept *key* with *values*.

    Quantities become numbers. Values that are all numbers, all strings or all booleans are
    unchanged. All other values become labels; see `label`.
    """
    for unit in UNITS:
        try:
            numbers = [float(unit.parse(value)) / unit.size for value in values]
        except units.UnitError:
            continue
        return key if key.endswith(unit.suffix) else key + unit.suffix, numbers
    kinds = {bool if isinstance(v, bool) else float if isinstance(v, (int, float)) else type(v) for v in values}
    if kinds in ({bool}, {float}, {str}):
        return key, list(values)
    return key, _distinct(values)


def column_of(key: str, columns: Sequence[str]) -> str:
    """Return the name in *columns* that belongs to the swept *key*, ignoring a unit suffix.

    Return *key* if there is none.
    """
    return next((name for name in (key, *(key + unit.suffix for unit in UNITS)) if name in columns), key)


def key_of(name: str, keys: Sequence[str]) -> str:
    """Return the key in *keys* that column *name* belongs to, ignoring a unit suffix.

    Return *name* if there is none.
    """
    return next((key for key in keys if name in (key, *(key + unit.suffix for unit in UNITS))), name)


def as_text(table: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Return *table* with quantities of *keys* as strings with a unit, in columns named by keys."""
    found = table
    for key in keys:
        unit = next((unit for unit in UNITS if key not in table and key + unit.suffix in table), None)
        if unit is not None:
            texts = [unit.write(float(number) * unit.size) for number in table[key + unit.suffix]]
            found = found.assign(**{key + unit.suffix: texts}).rename(columns={key + unit.suffix: key})
    return found


def label(value: Any) -> str:
    """Return a short string for *value*: a block's name and settings, a topology's name."""
    if isinstance(value, (list, tuple)):
        return ", ".join(_inner(item) for item in value) or "none"
    if not isinstance(value, Mapping):
        return value if isinstance(value, str) else "none" if value is None else json.dumps(value, default=str)
    name = str(value.get("name") or str(value.get("path", "")).rsplit("/", 1)[-1])
    if value.keys() >= {"nodes", "links"}:
        return name or f"{len(value['nodes'])} nodes, {len(value['links'])} links"
    named_by = "name" if value.get("name") else "path"
    rest = ", ".join(f"{key} {_inner(inner)}" for key, inner in value.items() if key != named_by)
    return f"{name} ({rest})" if rest and name else name or rest or "none"


def _inner(value: Any) -> str:
    return f"({label(value)})" if isinstance(value, Mapping) else label(value)


def _distinct(values: Sequence[Any]) -> list[str]:
    """Return the labels of *values*, with a number if different values have the same label."""
    by_label: dict[str, list[str]] = {}
    cells = []
    for value in values:
        text, content = label(value), json.dumps(value, sort_keys=True, default=str)
        alike = by_label.setdefault(text, [])
        if content not in alike:
            alike.append(content)
        number = alike.index(content)
        cells.append(text if not number else f"{text} ({number + 1})")
    return cells
