"""List the changes to try: links, devices and settings doubled or halved, and parts on sale."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from simcluster.documents import yaml as yaml_lines
from simcluster.documents.reading import DocumentReading
from simcluster.documents.shipped import parts_path
from simcluster.errors import UsageError
from simcluster.spelling import nearest
from simcluster.topology import Device, Topology
from simcluster.topology.model.device import profile_block
from simcluster.topology.model.link import Link
from simcluster.topology.presets.links import BETWEEN_MACHINES, DEVICES, LINKS, LinkType
from simcluster.topology.read.devices import DEVICE_KEYS
from simcluster.units import write_bandwidth, write_latency, write_rate

if TYPE_CHECKING:
    # A list of parts does not need this import, which would load torch at run time.
    from simcluster.experiment.read.experiment import Experiment

Kind = Literal[
    "bandwidth", "latency", "loss", "nic", "overhead", "device", "straggler", "setting", "purchase",
    "share", "order", "without",
]  # fmt: skip

_PRICE = re.compile(r"([0-9]+(?:\.[0-9]+)?) USD")

HALF, LATE = 0.5, 10.0
"""A cable is broken below HALF of its type's bandwidth, or above LATE times its type's latency."""

MOST_PARTS = 24
"""Limit on links (or devices) that are changed one by one; with more, equal ones change together.
"""


@dataclass(frozen=True)
class Change:
    """One change to an experiment; *overrides* is dotted key -> new value.

    *part* is the name of a link, node or setting; *label* describes the change. A purchase also has
    *price_usd*, and *instead*, the type of the new part.
    """

    kind: Kind
    part: str
    label: str
    overrides: Mapping[str, Any] = field(hash=False)
    price_usd: float | None = None
    instead: str = ""


def changes(plan: Experiment, staleness: float | None = None) -> list[Change]:
    """Return all changes to try for *plan*; *staleness* is its run's mean, None if unknown."""
    return [*_of_links(plan.topology), *_of_nodes(plan.topology), *_of_settings(plan, staleness)]


def _of_links(topology: Topology) -> Iterator[Change]:
    # Links of rank 0 are never grouped with others: rank 0 is often a server, so its links carry a
    # different load.
    first = topology.workers[0]
    alike = _groups(topology.links, lambda link: (str(link), link.loss, link.medium, first in (link.a, link.b)))
    for links in alike:
        name = _name([link.name for link in links])
        wider = {f"topology.links.{link.name}.bandwidth": write_bandwidth(2 * link.bandwidth_Bps) for link in links}
        yield Change("bandwidth", name, f"{name}: twice the bandwidth", wider)
        if links[0].latency_s:
            sooner = {f"topology.links.{link.name}.latency": write_latency(link.latency_s / 2) for link in links}
            yield Change("latency", name, f"{name}: half the latency", sooner)
        if links[0].loss:
            lost = {f"topology.links.{link.name}.loss": link.loss / 2 for link in links}
            yield Change("loss", name, f"{name}: half the losses", lost)


def _of_nodes(topology: Topology) -> Iterator[Change]:
    def numbers(name: str) -> tuple[Any, ...]:
        node = topology.nodes[name]
        is_first = name == topology.workers[0]
        return node.device, node.send_overhead_s, node.recv_overhead_s, node.host_bandwidth_Bps, is_first

    for names in _groups(topology.workers, numbers):
        shown = _name(names)
        node = topology.nodes[names[0]]
        device = topology.device(names[0])
        yield Change("device", shown, f"{shown}: a device twice as fast", _inside(names, twice_as_fast(device)))
        if device.straggler is not None:
            steady = {"straggler": {"kind": "constant", "factor": 1}}
            yield Change("straggler", shown, f"{shown}: as fast as its numbers say", _inside(names, steady))
        if math.isfinite(node.host_bandwidth_Bps):
            wider = {"host_bandwidth": write_bandwidth(2 * node.host_bandwidth_Bps)}
            yield Change("nic", shown, f"{shown}: twice the bandwidth of its own", _inside(names, wider))
        overheads = {"send_overhead": node.send_overhead_s, "recv_overhead": node.recv_overhead_s}
        less = {key: write_latency(seconds / 2) for key, seconds in overheads.items() if seconds}
        if less:
            yield Change("overhead", shown, f"{shown}: half the overhead of messages", _inside(names, less))


def twice_as_fast(device: Device) -> dict[str, Any]:
    """Return the keys of a node, with values, that make its *device* twice as fast at any work.

    The keys are those of the part that computes, the CPU or the accelerator.
    """
    keys: dict[str, Any] = {"flops": write_rate(2 * device.flops_per_s)}
    if math.isfinite(device.memory_bandwidth_Bps):
        keys["memory_bandwidth"] = write_bandwidth(2 * device.memory_bandwidth_Bps)
    for key, seconds in (("work_overhead", device.work_overhead_s), ("operator_overhead", device.operator_overhead_s)):
        if seconds:
            keys[key] = write_latency(seconds / 2)
    if device.profile is not None:
        halved = {kind: {int(flops): seconds / 2 for flops, seconds in points} for kind, points in device.profile.kinds}
        keys["profile"] = profile_block(halved)
    return {".".join((*device.own_keys, key)): value for key, value in keys.items()}


def _inside(names: Iterable[str], keys: Mapping[str, Any]) -> dict[str, Any]:
    return {f"topology.nodes.{name}.{key}": value for name in names for key, value in keys.items()}


def _of_settings(plan: Experiment, staleness: float | None) -> Iterator[Change]:
    for key, value in _numbers(plan.document["algorithm"], ("algorithm",)):
        name = key.removeprefix("algorithm.")
        half = value // 2 if isinstance(value, int) else value / 2
        for other in (half, value * 2):
            if other and other != value:
                yield Change("setting", name, f"{name}: {other:g} in place of {value:g}", {key: other})
    settings = plan.algorithm_settings
    if "max_staleness" in settings and settings["max_staleness"] is None and staleness is not None:
        bound = max(1, round(staleness))
        label = f"max_staleness: {bound}, the mean, in place of no limit"
        yield Change("setting", "max_staleness", label, {"algorithm.max_staleness": bound})


def _numbers(block: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[str, int | float]]:
    """Yield (dotted key, value) for every number above zero in *block*, at any depth."""
    for key, value in block.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, (*path, str(key)))
        elif isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
            yield ".".join((*path, str(key))), value


def _groups(parts: Iterable[Any], numbers: Any) -> list[list[Any]]:
    """Return *parts* in groups: each alone if there are few, otherwise by the value of *numbers*."""
    found = list(parts)
    if len(found) <= MOST_PARTS:
        return [[part] for part in found]
    alike: dict[Any, list[Any]] = {}
    for part in found:
        alike.setdefault(numbers(part), []).append(part)
    return list(alike.values())


def _name(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} like it"


@dataclass(frozen=True)
class PartOffer:
    """A link type or device on sale; a link connects only devices whose names match *fits*."""

    name: str
    price_usd: float
    fits: tuple[str, ...] = ("*",)


@dataclass(frozen=True)
class Parts:
    """The link types and devices on sale."""

    links: tuple[PartOffer, ...] = ()
    devices: tuple[PartOffer, ...] = ()


def read_parts(source: str | Path | None = None) -> Parts:
    """Return the price list in the file *source*, or the shipped list if None.

    Raise UsageError, with all problems, if the file is missing or invalid.
    """
    path = Path(source) if source is not None else parts_path()
    if not path.is_file():
        raise UsageError("--parts", str(path), "a file with prices of links and devices")
    reading = DocumentReading(yaml_lines.load(path), path.parent)
    if not isinstance(reading.document.data, dict):
        reading.bad((), "a mapping: links and devices, each type with its price")
        raise UsageError(reading.problems)
    for key in reading.document.data:
        if key not in ("links", "devices"):
            reading.bad((key,), nearest(str(key), ("links", "devices")), "unknown key", at_key=True)
    links = tuple(_offers(reading, "links", LINKS, ("price", "fits")))
    devices = tuple(_offers(reading, "devices", DEVICES, ("price",)))
    if reading.problems:
        raise UsageError(reading.problems)
    return Parts(links, devices)


def _offers(
    reading: DocumentReading, kind: str, known: Mapping[str, Any], keys: tuple[str, ...]
) -> Iterator[PartOffer]:
    block = reading.document.data.get(kind) or {}
    if not isinstance(block, dict):
        reading.bad((kind,), "a mapping: each type with its price")
        return
    for name, offer in block.items():
        before = len(reading.problems)
        if name not in known:
            reading.bad((kind, name), nearest(str(name), known), f"unknown type of {kind}", at_key=True)
        if not isinstance(offer, dict):
            reading.bad((kind, name), "its price: {price: 60 USD}")
            continue
        for key in offer:
            if key not in keys:
                reading.bad((kind, name, key), nearest(str(key), keys), "unknown key", at_key=True)
        price = _PRICE.fullmatch(str(offer.get("price")))
        if price is None or not float(price[1]):
            reading.bad((kind, name, "price"), "a price above zero, such as 60 USD")
        fits = offer.get("fits", ["*"])
        if not isinstance(fits, list) or not fits or not all(isinstance(pattern, str) for pattern in fits):
            reading.bad((kind, name, "fits"), "patterns of devices: [mac-*]")
        if len(reading.problems) == before and price is not None:
            yield PartOffer(str(name), float(price[1]), tuple(fits))


def purchases(topology: Topology, parts: Parts, wanted: set[str]) -> list[Change]:
    """Return every purchase of a faster part for the links and nodes in *wanted*."""
    return [*_new_links(topology, parts, wanted), *_new_devices(topology, parts, wanted)]


def _new_links(topology: Topology, parts: Parts, wanted: set[str]) -> Iterator[Change]:
    for link in topology.links:
        for offer in parts.links if link.name in wanted else ():
            new = LINKS[offer.name]
            wired = link.medium is None and link.duplex != "half"
            as_wide = new.bandwidth_Bps == link.bandwidth_Bps and (new.latency_s < link.latency_s or not wired)
            # A cable with a higher latency may still gain: the simulation decides.
            if not (new.bandwidth_Bps > link.bandwidth_Bps or as_wide) or _is_there(link, new):
                continue
            ends = [topology.nodes[end] for end in (link.a, link.b)]
            if offer.name in BETWEEN_MACHINES and any(end.kind == "switch" for end in ends):
                continue
            names = [end.device.name for end in ends if end.device is not None and end.device.name != "custom"]
            if not all(any(fnmatchcase(name, fit) for fit in offer.fits) for name in names):
                continue
            subnet = {"subnet": link.subnet} if link.subnet else {}
            overrides = {f"topology.links.{link.name}": {"between": [link.a, link.b], "type": offer.name, **subnet}}
            yield _purchase(link.name, offer, overrides)


def _is_there(link: Link, new: LinkType) -> bool:
    """Return whether *link* is already as fast as a cable of type *new*, which then gains nothing.

    Measured numbers show what a cable achieves between these machines, which may be less than its
    type promises. A link without a type counts as any type if it has at least half of that type's
    bandwidth. A link far below its type is broken, and worth replacing.
    """
    if link.type is None:
        is_air = link.medium is not None or link.duplex == "half"
        return not is_air and not link.loss and new.bandwidth_Bps <= link.bandwidth_Bps / HALF
    known = LINKS[link.type]
    is_slow = link.bandwidth_Bps < HALF * known.bandwidth_Bps or link.latency_s > LATE * known.latency_s
    return new.bandwidth_Bps <= known.bandwidth_Bps and not is_slow and not link.loss


def _new_devices(topology: Topology, parts: Parts, wanted: set[str]) -> Iterator[Change]:
    for name in topology.workers:
        device = topology.device(name)
        for offer in parts.devices if name in wanted else ():
            new = DEVICES[offer.name].on(topology.nodes[name].compute)
            # Compare by the preset as well, if its numbers are overridden, for example by measured
            # ones: a second machine of this type would have the same numbers.
            now = DEVICES[device.name].on(topology.nodes[name].compute) if device.name in DEVICES else device
            most = max(now.flops_per_s, device.flops_per_s)
            faster = new.flops_per_s > most and new.operator_overhead_s <= device.operator_overhead_s
            steadier = device.straggler is not None and new.flops_per_s >= device.flops_per_s
            if not new.has_what_it_is_asked or (not faster and not steadier):
                continue
            block = topology.document.get("nodes", {}).get(name) or {}
            replaced = {*DEVICE_KEYS} - {"price_per_hour"}  # The price per hour is assumed to stay.
            kept = {key: value for key, value in block.items() if key not in replaced}
            yield _purchase(name, offer, {f"topology.nodes.{name}": kept | {"device": offer.name}})


def _purchase(part: str, offer: PartOffer, overrides: Mapping[str, Any]) -> Change:
    return Change("purchase", part, f"{offer.name} for {part}", overrides, offer.price_usd, offer.name)
