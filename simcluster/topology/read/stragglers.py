"""Reads a device's straggler model from a topology document: its kind, and the settings of that kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from simcluster.documents.fields import Fields
from simcluster.topology.model import stragglers
from simcluster.topology.model.stragglers import Straggler, Trace
from simcluster.topology.read.trace_file import first_fault, read_trace
from simcluster.units import UnitError, parse_latency, write_latency


class _Setting(NamedTuple):
    """*field* of the class is read by *read*; *expected* says what must stand there. Some have a default."""

    field: str
    read: Callable[[Fields, str, str], Any]
    expected: str
    has_default: bool = False


def _number(fits: Callable[[float], bool]) -> Callable[[Fields, str, str], float | None]:
    return lambda fields, key, expected: fields.number(key, fits, expected)


def _time(fields: Fields, key: str, _: str) -> float | None:
    return fields.quantity(key, positive_time)


def positive_time(text: object) -> float:
    """Seconds, above zero. Raises UnitError."""
    time_s = parse_latency(text)
    if not time_s:
        raise UnitError(f"{text!r}, which is zero", "a time above zero")
    return time_s


def _sojourn(fields: Fields, key: str, expected: str) -> float | None:
    time_s = fields.quantity(key, positive_time)
    if time_s is not None and time_s < SHORTEST_S:
        fields.problem(key, expected=expected)
    return time_s


SHORTEST_S = 10e-6
"""Every change of a Markov straggler is simulated: shorter ones would take for ever and change no work that counts."""

_FACTOR = _Setting("factor", _number(lambda x: x > 0), "a number above zero")
_MEAN = _Setting("mean", _number(lambda x: x > 0), "a number above zero")
_A_TIME = "a time with its unit, above zero"
_A_SOJOURN = "a time with its unit, 10 us at least"

_KINDS: dict[str, tuple[Callable[..., Straggler], dict[str, _Setting]]] = {
    "constant": (stragglers.Constant, {"factor": _FACTOR}),
    "lognormal": (
        stragglers.Lognormal,
        {"sigma": _Setting("sigma", _number(lambda x: 0 <= x <= 10), "a number from 0 to 10")},
    ),
    "exponential": (stragglers.Exponential, {"mean": _MEAN._replace(has_default=True)}),
    "shifted-exponential": (
        stragglers.ShiftedExponential,
        {"mean": _MEAN, "shift": _Setting("shift", _number(lambda x: x >= 0), "a number, 0 or above", True)},
    ),
    "pareto": (
        stragglers.Pareto,
        {
            "shape": _Setting("shape", _number(lambda x: x > 1), "a number above 1: else the mean is infinite"),
            "minimum": _Setting("minimum", _number(lambda x: x > 0), "a number above zero", True),
        },
    ),
    "two-point": (
        stragglers.TwoPoint,
        {
            "probability": _Setting("probability", _number(lambda x: 0 <= x <= 1), "a number from 0 to 1"),
            "factor": _FACTOR,
        },
    ),
    "markov": (
        stragglers.Markov,
        {
            "factor": _FACTOR,
            "slow": _Setting("slow_s", _sojourn, _A_SOJOURN),
            "fast": _Setting("fast_s", _sojourn, _A_SOJOURN),
        },
    ),
    "thermal": (
        stragglers.Thermal,
        {
            "factor": _FACTOR,
            "heating": _Setting("heating_s", _time, _A_TIME),
            "cooling": _Setting("cooling_s", _time, _A_TIME),
        },
    ),
}
_TRACE_KEYS = ("file", "factors")

STRAGGLER_KINDS: dict[str, tuple[str, ...]] = {
    **{kind: tuple(settings) for kind, (_, settings) in _KINDS.items()},
    "trace": _TRACE_KEYS,
}
"""Kind -> its keys."""

STRAGGLER_KEYS = tuple(dict.fromkeys(["kind", *(key for keys in STRAGGLER_KINDS.values() for key in keys)]))


def read_straggler(node: Fields) -> Straggler | None:
    """The node's straggler model, or None if something in it is wrong."""
    fields = Fields(node.document, (*node.path, "straggler"), STRAGGLER_KEYS, node.problems)
    if not fields.is_mapping:
        return None
    # `--set nodes.pi4.straggler.factor=10` on a node that has no straggler yet means the simplest kind.
    kind = fields.choice("kind", STRAGGLER_KINDS) or ("constant" if not fields.has("kind") else None)
    if kind is None:
        return None
    before = len(fields.problems)
    keys = STRAGGLER_KINDS[kind]
    for key in fields.data:
        if key in STRAGGLER_KEYS and key not in ("kind", *keys):
            fields.problem(key, found=f"it with kind {kind}", expected=" and ".join(keys), at_key=True)
    if kind == "trace":
        trace = _read_trace(fields)
        return trace if len(fields.problems) == before else None
    make, settings = _KINDS[kind]
    values: dict[str, Any] = {}
    for key, setting in settings.items():
        if fields.has(key):
            values[setting.field] = setting.read(fields, key, setting.expected)
        elif not setting.has_default:
            fields.problem(key, expected=setting.expected)
    return make(**values) if len(fields.problems) == before else None


def _read_trace(fields: Fields) -> Trace | None:
    if fields.has("file") == fields.has("factors"):
        expected = "a file (CSV, time_s and factor), or factors ({0 s: 1, 10 s: 3})"
        fields.problem(
            found="both" if fields.has("file") else "neither", expected=f"either {' or '.join(_TRACE_KEYS)}: {expected}"
        )
        return None
    if fields.has("factors"):
        return _read_factors(fields)
    name = fields.get("file")
    if not isinstance(name, str):
        fields.problem("file", expected="the path of a CSV file, relative to this one")
        return None
    path = fields.document.folder_of((*fields.path, "file")) / name
    factors = read_trace(path, fields.problems)
    if factors is None:
        return None
    # The document is to read back to the same topology wherever it is taken, so it holds what the file said.
    block = {"kind": "trace", "factors": {write_latency(time_s): factor for time_s, factor in factors}}
    fields.document.get(fields.path[:-1])["straggler"] = block
    return Trace(factors)


def _read_factors(fields: Fields) -> Trace | None:
    block = fields.get("factors")
    if not isinstance(block, Mapping) or not block:
        fields.problem("factors", expected="a mapping of times to factors: {0 s: 1, 10 s: 3}")
        return None
    inner = Fields(fields.document, (*fields.path, "factors"), tuple(block), fields.problems)
    rows: list[tuple[float, float]] = []
    for key in block:
        factor = inner.number(key, lambda x: x > 0, "a number above zero")
        if not inner.has(key):
            inner.problem(key, expected="a number above zero")
        try:
            time_s = parse_latency(key)
        except UnitError as error:
            inner.problem(key, found=error.found, expected=error.expected, at_key=True)
            continue
        fault = first_fault(time_s, rows[-1][0] if rows else None)
        if fault is not None:
            inner.problem(key, found=repr(key), expected=fault, at_key=True)
        rows.append((time_s, factor or 1.0))
    return Trace(tuple(rows))
