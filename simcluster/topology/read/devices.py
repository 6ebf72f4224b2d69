"""Read the device of a node in a topology document: preset, own numbers, profile, straggler."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Annotated, Any, ClassVar

from pydantic import Field
from pydantic_core import InitErrorDetails

from simcluster.documents.models import Block, Faults, Given, Keys, WrongValue, block_of, fault, refuse, tried
from simcluster.documents.values import (
    Bandwidth,
    Latency,
    Positive,
    PositiveSize,
    Power,
    Price,
    Rate,
    Schema,
    ValueValidator,
    block,
    one_of,
    quantity_schema,
    time,
)
from simcluster.spelling import nearest
from simcluster.topology.model.compute import ACCELERATORS
from simcluster.topology.model.device import Accelerator, Device, Profile
from simcluster.topology.model.stragglers import Straggler, Trace
from simcluster.topology.presets.links import DEVICES
from simcluster.topology.read.traces import TraceBlock, one_of_file_and, steps
from simcluster.units import AMOUNTS, TIMES, UnitError, format_size, parse_amount, parse_power, parse_size, pattern_of

_WORK = ("gradient", "apply")
"""The kinds of work of the library's model replicas.

User code may use other names, but a name that is almost one of these counts as a typo.
"""

_KIND = re.compile(r"[A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)+")
_TIMES = "a time, or times by FLOPs: {13 MFLOP: 1.2 ms}"
_FACTORS = steps(
    Positive, "a mapping of times to factors: {0 s: 1, 10 s: 3}", {"type": "number", "exclusiveMinimum": 0}
)
_BY_FLOPS: Schema = {
    "type": "object",
    "minProperties": 1,
    "propertyNames": {"pattern": pattern_of(AMOUNTS)},
    "additionalProperties": quantity_schema(TIMES),
}
_PROFILE: Schema = {
    "type": "object",
    "minProperties": 1,
    "propertyNames": {"pattern": f"^{_KIND.pattern}$"},
    "additionalProperties": {"anyOf": [quantity_schema(TIMES), _BY_FLOPS]},
    "description": "The time of each kind of work, or its times by FLOPs.",
}


def _profile(block: object) -> Profile:
    if not isinstance(block, Mapping) or not block:
        raise WrongValue("a mapping of kinds of work to times: {mnist_mlp/gradient: 1.2 ms}")
    found: list[Any] = []
    kinds = []
    for kind, value in block.items():
        if not _KIND.fullmatch(kind):
            expected = "a kind of work: workload/what, such as mnist_mlp/gradient"
            found.append(fault(kind, found=repr(kind), expected=expected, at_key=True))
        elif (what := kind.rpartition("/")[2]) not in _WORK and get_close_matches(what, _WORK, cutoff=0.75):
            expected = f"the work of a replica: {nearest(what, _WORK)}"
            found.append(fault(kind, found=repr(kind), expected=expected, at_key=True))
        if value is None or value == {}:
            found.append(fault(kind, expected=_TIMES))
        elif isinstance(value, Mapping):
            kinds.append((kind, _points(kind, value, found)))
        else:
            kinds.append((kind, ((0.0, tried(found, time, value, kind) or 0.0),)))
    refuse(found)
    return Profile(tuple(kinds))


def _points(kind: str, table: Mapping[str, Any], found: list[InitErrorDetails]) -> tuple[tuple[float, float], ...]:
    points: dict[float, float] = {}
    for key, value in table.items():
        seconds = tried(found, time, value, kind, key)
        flops = tried(found, parse_amount, key, kind, key, at_key=True)
        if flops in points:
            found.append(fault(kind, key, found="a duplicate amount of arithmetic", expected="one", at_key=True))
        elif flops is not None:
            points[flops] = seconds or 0.0
    return tuple(sorted(points.items()))


class _FactorTrace(TraceBlock):
    rows, either = "factors", "file or factors: a file (CSV, time_s and factor), or factors ({0 s: 1, 10 s: 3})"
    rules: ClassVar[Schema] = one_of_file_and("factors")
    factors: Annotated[tuple[tuple[float, float], ...], _FACTORS] = ()


_CLASSES: dict[str, type[Straggler]] = {made.kind: made for made in Straggler.__subclasses__()}
_BLOCKS: dict[str, type[Block]] = {kind: block_of(made) for kind, made in _CLASSES.items() if made is not Trace}
_BLOCKS[Trace.kind] = _FactorTrace
STRAGGLER_KINDS = {kind: block.known.names for kind, block in _BLOCKS.items()}
"""Kind of straggler -> the keys of its mapping."""

_OF_STRAGGLERS = Keys(dict.fromkeys(["kind", *(key for keys in STRAGGLER_KINDS.values() for key in keys)]))
STRAGGLER_KEYS = _OF_STRAGGLERS.names


def _straggler(value: object) -> Straggler:
    given_kind = value.get("kind") if isinstance(value, dict) else None
    # `--set nodes.pi4.straggler.factor=10` on a node without a straggler means the simplest kind.
    kind = "constant" if given_kind is None else given_kind
    keys = STRAGGLER_KINDS.get(kind) if isinstance(kind, str) else None

    def make(given: Given) -> Any:
        if keys is None:
            return None
        settings = dict(_BLOCKS[kind].read({key: given[key] for key in keys if key in given}))
        settings.pop("file", None)
        return _CLASSES[kind](**settings)

    def faults(given: Given) -> Faults:
        if keys is None:
            yield fault("kind", expected=nearest(str(kind), _BLOCKS))
            return
        for key in given:
            if key in STRAGGLER_KEYS and key not in ("kind", *keys):
                yield fault(key, found=f"it with kind {kind}", expected=" and ".join(keys), at_key=True)

    made: Straggler = _OF_STRAGGLERS.check(value, make, faults, _OF_STRAGGLERS.unknown)
    return made


def _straggler_schema() -> Schema:
    """Return the JSON schema of a straggler, whose kind determines its keys."""
    kinds = {kind: made.model_json_schema() for kind, made in _BLOCKS.items()}
    cases = []
    for kind, schema in kinds.items():
        keys = {"kind": {"const": kind}}
        names = {"properties": keys} | ({} if kind == "constant" else {"required": ["kind"]})
        cases.append({"if": names, "then": schema | {"properties": schema["properties"] | keys}})
    return {"type": "object", "properties": {"kind": {"enum": list(kinds)}}, "allOf": cases}


class AcceleratorBlock(Block):
    """The accelerator of a node, with the fields of Accelerator; the preset's are the defaults."""

    kind: Annotated[str, one_of(ACCELERATORS)] | None = None
    flops_per_s: Rate | None = Field(None, alias="flops")
    memory_bandwidth_Bps: Bandwidth | None = Field(None, alias="memory_bandwidth")
    memory_bytes: PositiveSize | None = Field(None, alias="memory")
    work_overhead_s: Latency | None = Field(None, alias="work_overhead")
    operator_overhead_s: Latency | None = Field(None, alias="operator_overhead")
    profile: Annotated[Profile, ValueValidator(_profile, _PROFILE)] | None = None

    def made(self, preset: Accelerator | None) -> Accelerator:
        values = {name: getattr(self, name) for name in self.model_fields_set}
        return replace(preset, **values) if preset is not None else Accelerator(**values)


ACCELERATOR_KEYS = AcceleratorBlock.known.names


class DeviceBlock(Block):
    """The keys of a node that describe its device, with the fields of Device."""

    kind: Annotated[str, one_of(("worker", "host", "switch"))] | None = None
    device: Annotated[str, one_of(DEVICES)] | None = None
    flops_per_s: Rate | None = Field(None, alias="flops")
    memory_bandwidth_Bps: Bandwidth | None = Field(None, alias="memory_bandwidth")
    memory_bytes: PositiveSize | None = Field(None, alias="memory")
    usable_memory_bytes: PositiveSize | None = Field(None, alias="usable_memory")
    work_overhead_s: Latency | None = Field(None, alias="work_overhead")
    operator_overhead_s: Latency | None = Field(None, alias="operator_overhead")
    power_idle_W: Power | None = Field(None, alias="power_idle")
    power_busy_W: Power | None = Field(None, alias="power_busy")
    price_USD_per_h: Price | None = Field(None, alias="price_per_hour")
    profile: Annotated[Profile, ValueValidator(_profile, _PROFILE)] | None = None
    straggler: Annotated[Straggler, ValueValidator(_straggler, _straggler_schema)] | None = None
    accelerator: Annotated[AcceleratorBlock, block(AcceleratorBlock)] | None = None

    @classmethod
    def faults(cls, given: Given) -> Faults:
        yield from super().faults(given)
        preset = DEVICES.get(given["device"]) if isinstance(given.get("device"), str) else None
        if "device" not in given and "flops" not in given:
            found = "a worker without a device" if "kind" in given else "no device"
            expected = f"device (one of {', '.join(DEVICES)}), or flops with its unit"
            yield fault(found=found, expected=expected, at_key=True)
        elif "power_idle" in given or "power_busy" in given:
            yield from _power_faults(given, preset)
        yield from _memory_faults(given, preset)
        own = given.get("accelerator")
        if isinstance(own, Mapping) and (preset is None or preset.accelerator is None):
            missing = {"kind": " or ".join(ACCELERATORS), "flops": "a rate with its unit, such as 14 TFLOP/s"}
            for key, expected in missing.items():
                if own.get(key) is None:
                    yield fault("accelerator", key, expected=expected)

    def made(self) -> Device:
        """Return the preset with the node's numbers applied; without a preset, a custom device."""
        values = {name: getattr(self, name) for name in self.model_fields_set & _OF_DEVICE}
        if self.accelerator is not None:
            preset = DEVICES[self.device].accelerator if self.device is not None else None
            values["accelerator"] = self.accelerator.made(preset)
        if self.device is None:
            return Device(**{"name": "custom", "source": "given in the topology", **values})
        device = DEVICES[self.device]
        if self.flops_per_s is not None:
            values["threads"] = 1  # the number of threads that reach this rate is unknown
        given = ", ".join(key for key, name in _KEYS.items() if name in values and name != "straggler")
        source = f"{device.source}; {given} given in the topology" if given else device.source
        return replace(device, source=source, **values) if values else device


_KEYS = {info.alias or name: name for name, info in DeviceBlock.model_fields.items() if name not in ("kind", "device")}
_OF_DEVICE = frozenset(_KEYS.values())
DEVICE_KEYS = DeviceBlock.known.names[1:]


def _memory_faults(given: Given, preset: Device | None) -> Faults:
    """Yield a fault if the usable memory is larger than the memory."""
    try:
        usable = parse_size(given["usable_memory"])
        memory = parse_size(given["memory"]) if "memory" in given else preset.memory_bytes if preset else None
    except (KeyError, UnitError):
        return
    if memory is not None and usable > memory:
        yield fault("usable_memory", expected=f"at most the memory, {format_size(memory)}")


def _power_faults(given: Given, preset: Device | None) -> Faults:
    """Yield a fault if only one of the two powers is known, or if power_idle exceeds power_busy.

    A power comes from the node or its preset.
    """
    watts: dict[str, float | None] = {}
    for key, other in (("power_idle", "power_busy"), ("power_busy", "power_idle")):
        watts[key] = getattr(preset, f"{key}_W", None)
        if key in given:
            try:
                watts[key] = parse_power(given[key])
            except UnitError:
                return
        elif watts[key] is None and other in given:
            yield fault(key, expected=f"a power with its unit, as there is {other}")
    idle_W, busy_W = watts["power_idle"], watts["power_busy"]
    if idle_W is not None and busy_W is not None and idle_W > busy_W:
        key = "power_idle" if "power_idle" in given else "power_busy"
        yield fault(key, expected=f"power_idle ({idle_W:g} W) of at most power_busy ({busy_W:g} W)")
