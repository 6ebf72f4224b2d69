"""Reads what computes on a node of a topology document: a preset, and the numbers that the node gives itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from simcluster.documents.fields import Fields
from simcluster.errors import nearest
from simcluster.topology.model.device import Device
from simcluster.topology.model.profile import Profile
from simcluster.topology.presets.links import DEVICES
from simcluster.topology.read.stragglers import positive_time, read_straggler
from simcluster.units import (
    UnitError,
    parse_amount,
    parse_bandwidth,
    parse_latency,
    parse_power,
    parse_price,
    parse_rate,
    parse_size,
)

_WORK = ("gradient", "apply")
"""What replicas do; own code may call its work otherwise, but not nearly so."""

_KIND = re.compile(r"[A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)+")


def _positive_size(text: object) -> int:
    size_bytes = parse_size(text)
    if not size_bytes:
        raise UnitError(f"{text!r}, which is zero", "a size above zero")
    return size_bytes


_QUANTITIES: dict[str, tuple[str, Callable[[object], float]]] = {
    "flops": ("flops_per_s", parse_rate),
    "memory_bandwidth": ("memory_bandwidth_Bps", parse_bandwidth),
    "memory": ("memory_bytes", _positive_size),
    "work_overhead": ("work_overhead_s", parse_latency),
    "operator_overhead": ("operator_overhead_s", parse_latency),
    "power_idle": ("power_idle_W", parse_power),
    "power_busy": ("power_busy_W", parse_power),
    "price_per_hour": ("price_USD_per_h", parse_price),
}
"""Key -> the field of Device that it fills, and how it is read."""

DEVICE_KEYS = ("device", *_QUANTITIES, "profile", "straggler")


def read_device(fields: Fields) -> Device | None:
    """The device of the node that *fields* are of: a preset with the node's own numbers, or all numbers given."""
    preset = fields.choice("device", DEVICES)
    values: dict[str, Any] = {
        field: value
        for key, (field, parse) in _QUANTITIES.items()
        if (value := fields.quantity(key, parse)) is not None
    }
    if fields.has("profile"):
        values["profile"] = _read_profile(fields)
    if fields.has("straggler"):
        values["straggler"] = read_straggler(fields)
    if preset is None:
        if not fields.has("device") and not fields.has("flops"):
            fields.problem(
                found="no device" if not fields.has("kind") else "a worker without a device",
                expected=f"device (one of {', '.join(DEVICES)}), or flops with its unit",
                at_key=True,
            )
        if "flops_per_s" not in values:
            return None
        device = Device("custom", values["flops_per_s"], source="given in the topology")
    else:
        device = DEVICES[preset]
        given = [key for key in (*_QUANTITIES, "profile") if fields.has(key)]
        if given:
            device = replace(device, source=f"{device.source}; {', '.join(given)} given in the topology")
    device = replace(device, **values) if values else device
    _check_powers(fields, device)
    return device


def _check_powers(fields: Fields, device: Device) -> None:
    idle_W, busy_W = device.power_idle_W, device.power_busy_W
    for key, value, other in (("power_idle", idle_W, "power_busy"), ("power_busy", busy_W, "power_idle")):
        if value is None and fields.has(other) and not fields.has(key):
            fields.problem(key, expected=f"a power with its unit, as there is {other}")
    if idle_W is not None and busy_W is not None and idle_W > busy_W:
        key = "power_idle" if fields.has("power_idle") else "power_busy"
        fields.problem(key, expected=f"power_idle ({idle_W:g} W) of at most power_busy ({busy_W:g} W)")


def _read_profile(node: Fields) -> Profile | None:
    block = node.get("profile")
    if not isinstance(block, Mapping) or not block:
        node.problem("profile", expected="a mapping of kinds of work to times: {mnist_mlp/gradient: 1.2 ms}")
        return None
    fields = Fields(node.document, (*node.path, "profile"), tuple(block), node.problems)
    before = len(fields.problems)
    kinds = []
    for kind in block:
        if not _KIND.fullmatch(kind):
            fields.problem(
                kind,
                found=repr(kind),
                expected="a kind of work: workload/what, such as mnist_mlp/gradient",
                at_key=True,
            )
        elif (what := kind.rpartition("/")[2]) not in _WORK and get_close_matches(what, _WORK, cutoff=0.75):
            fields.problem(
                kind, found=repr(kind), expected=f"the work of a replica: {nearest(what, _WORK)}", at_key=True
            )
        if isinstance(fields.get(kind), Mapping):
            points = _read_points(fields, kind)
        elif fields.has(kind):
            points = [(0.0, fields.quantity(kind, positive_time) or 0.0)]
        else:
            fields.problem(kind, expected="a time, or times by FLOPs: {13 MFLOP: 1.2 ms}")
            continue
        kinds.append((kind, tuple(points)))
    return Profile(tuple(kinds)) if len(fields.problems) == before else None


def _read_points(profile: Fields, kind: str) -> list[tuple[float, float]]:
    table: Mapping[str, Any] = profile.get(kind)
    fields = Fields(profile.document, (*profile.path, kind), tuple(table), profile.problems)
    if not table:
        profile.problem(kind, expected="a time, or times by FLOPs: {13 MFLOP: 1.2 ms}")
    points: dict[float, float] = {}
    for key in table:
        if not fields.has(key):
            fields.problem(key, expected="a time with its unit")
        seconds = fields.quantity(key, positive_time)
        try:
            flops = parse_amount(key)
        except UnitError as error:
            fields.problem(key, found=error.found, expected=error.expected, at_key=True)
            continue
        if flops in points:
            fields.problem(key, found="the same amount of arithmetic a second time", expected="it once", at_key=True)
        points[flops] = seconds or 0.0
    return sorted(points.items())
