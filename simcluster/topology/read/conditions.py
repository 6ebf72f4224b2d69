"""Reads what makes a link less than its numbers from a topology document: jitter, a bandwidth trace, background."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast, get_args

from simcluster.documents.fields import Fields
from simcluster.topology.model.conditions import Background, Jitter, JitterKind, RateTrace
from simcluster.topology.read.stragglers import positive_time
from simcluster.topology.read.trace_file import first_fault, read_rates
from simcluster.units import UnitError, parse_bandwidth, parse_bandwidth_or_zero, parse_latency, write_latency

JITTER_KEYS = ("kind", "mean", "sigma")
TRACE_KEYS = ("file", "steps", "period")
BACKGROUND_KEYS = ("rate", "on", "off")

_STEPS = "a mapping of times to factors or bandwidths: {0 s: 1, 10 s: 0.2, 12 s: 30 Mbps}"


def read_jitter(link: Fields) -> Jitter | None:
    """The link's jitter: a time alone is the mean of an exponential one."""
    if not isinstance(link.get("jitter"), Mapping):
        mean_s = link.quantity("jitter", positive_time)
        return None if mean_s is None else Jitter(mean_s)
    fields = Fields(link.document, (*link.path, "jitter"), JITTER_KEYS, link.problems)
    before = len(fields.problems)
    kind = cast(JitterKind, fields.choice("kind", get_args(JitterKind)) or "exponential")
    mean_s = fields.quantity("mean", positive_time)
    sigma = fields.number("sigma", lambda x: 0 < x <= 10, "a number above 0, at most 10")
    if not fields.has("mean"):
        fields.problem("mean", expected="a time with its unit: what comes on top of the latency on average")
    if (kind == "lognormal") != fields.has("sigma"):
        found, expected = ("it", "none") if fields.has("sigma") else ("nothing", "a number above 0, at most 10")
        fields.problem("sigma", found=f"{found} with kind {kind}", expected=expected, at_key=fields.has("sigma"))
    return Jitter(mean_s, kind, sigma or 0.0) if len(fields.problems) == before and mean_s is not None else None


def read_background(above: Fields) -> Background | None:
    """The background of a link: a bandwidth alone is always there."""
    if not isinstance(above.get("background"), Mapping):
        rate_Bps = above.quantity("background", parse_bandwidth)
        return None if rate_Bps is None else Background(rate_Bps)
    return traffic(Fields(above.document, (*above.path, "background"), BACKGROUND_KEYS, above.problems))


def traffic(fields: Fields) -> Background | None:
    """The rate of a background, and for how long it is on and off."""
    before = len(fields.problems)
    rate_Bps = fields.quantity("rate", parse_bandwidth)
    if fields.is_mapping and not fields.has("rate"):
        fields.problem("rate", expected="a bandwidth with its unit")
    times_s = [fields.quantity(key, positive_time) for key in ("on", "off")]
    for key, other in (("on", "off"), ("off", "on")):
        if fields.has(other) and not fields.has(key):
            fields.problem(key, expected=f"a time with its unit, as there is {other}")
    if len(fields.problems) > before or rate_Bps is None:
        return None
    on_s, off_s = times_s
    return Background(rate_Bps) if on_s is None or off_s is None else Background(rate_Bps, on_s, off_s)


def read_rate_trace(link: Fields, bandwidth_Bps: float | None) -> RateTrace | None:
    """The link's bandwidth in time, of *bandwidth_Bps* where it says factors.

    The document is to read back to the same topology wherever it is taken, so it gets what a file said in its place.
    """
    fields = Fields(link.document, (*link.path, "trace"), TRACE_KEYS, link.problems)
    if not fields.is_mapping:
        return None
    before = len(fields.problems)
    if fields.has("file") == fields.has("steps"):
        found = "both" if fields.has("file") else "neither"
        fields.problem(found=found, expected=f"either a file (CSV, time_s and factor or bandwidth) or steps, {_STEPS}")
        return None
    period_s = fields.quantity("period", positive_time)
    steps = _read_file(fields) if fields.has("file") else _read_steps(fields)
    if len(fields.problems) > before or bandwidth_Bps is None or steps is None:
        return None
    if period_s is not None and steps[-1][0] >= period_s:
        fields.problem("period", expected=f"more than {steps[-1][0]:g} s, the time of the last step")
        return None
    block: dict[str, Any] = {"steps": {write_latency(at_s): value for at_s, value in steps}}
    if period_s is not None:
        block["period"] = fields.get("period")
    link.document.get(link.path)["trace"] = block
    rates = tuple((at_s, _rate_Bps(value, bandwidth_Bps)) for at_s, value in steps)
    return RateTrace(rates) if period_s is None else RateTrace(rates, period_s)


def _rate_Bps(value: float | str, bandwidth_Bps: float) -> float:
    return parse_bandwidth_or_zero(value) if isinstance(value, str) else value * bandwidth_Bps


def _read_file(fields: Fields) -> Sequence[tuple[float, float | str]] | None:
    name = fields.get("file")
    if not isinstance(name, str):
        fields.problem("file", expected="the path of a CSV file, relative to this one")
        return None
    return read_rates(fields.document.folder_of((*fields.path, "file")) / name, fields.problems)


def _read_steps(fields: Fields) -> Sequence[tuple[float, float | str]] | None:
    block = fields.get("steps")
    if not isinstance(block, Mapping) or not block:
        fields.problem("steps", expected=_STEPS)
        return None
    inner = Fields(fields.document, (*fields.path, "steps"), tuple(block), fields.problems)
    steps: list[tuple[float, float | str]] = []
    for key in block:
        value = inner.get(key)
        if isinstance(value, str):
            inner.quantity(key, parse_bandwidth_or_zero)
        elif inner.number(key, lambda x: x >= 0, "a number, 0 or above, or a bandwidth with its unit") is None:
            if not inner.has(key):
                inner.problem(key, expected="a number, 0 or above, or a bandwidth with its unit")
            continue
        try:
            at_s = parse_latency(key)
        except UnitError as error:
            inner.problem(key, found=error.found, expected=error.expected, at_key=True)
            continue
        fault = first_fault(at_s, steps[-1][0] if steps else None)
        if fault is not None:
            inner.problem(key, found=repr(key), expected=fault, at_key=True)
        steps.append((at_s, value))
    return steps
