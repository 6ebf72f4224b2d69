"""Purchases: the parts on a price list that are faster than what a cluster has in their place.

The list is a YAML file, checked like all our files: every problem at once, with its line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from simcluster.documents import yaml as yaml_lines
from simcluster.documents.reading import Reading
from simcluster.documents.shipped import parts_path
from simcluster.errors import Problem, UsageError, nearest
from simcluster.topology import Topology
from simcluster.topology.presets.links import DEVICES, LINKS
from simcluster.topology.read.devices import DEVICE_KEYS
from simcluster.what_if.perturb import Change

_PRICE = re.compile(r"([0-9]+(?:\.[0-9]+)?) USD")


@dataclass(frozen=True)
class Offer:
    """A link type or a device for *price_usd*; *fits* are patterns of the devices that may be at a link's ends."""

    name: str
    price_usd: float
    fits: tuple[str, ...] = ("*",)


@dataclass(frozen=True)
class Parts:
    """The parts on sale."""

    links: tuple[Offer, ...] = ()
    devices: tuple[Offer, ...] = ()


def read_parts(source: str | Path | None = None) -> Parts:
    """Return the price list in the file *source*, by default the shipped one. Raises UsageError with all problems."""
    path = Path(source) if source is not None else parts_path()
    if not path.is_file():
        raise UsageError(Problem("--parts", str(path), "a file with prices of links and devices"))
    reading = Reading(yaml_lines.load(path), path.parent)
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


def _offers(reading: Reading, kind: str, known: Mapping[str, Any], keys: tuple[str, ...]) -> Iterator[Offer]:
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
            yield Offer(str(name), float(price[1]), tuple(fits))


def purchases(topology: Topology, parts: Parts, wanted: set[str]) -> list[Change]:
    """Return every single purchase for the links and nodes in *wanted* that is faster than the present part."""
    return [*_new_links(topology, parts, wanted), *_new_devices(topology, parts, wanted)]


def _new_links(topology: Topology, parts: Parts, wanted: set[str]) -> Iterator[Change]:
    blocks = topology.document["links"]
    for link, block in zip(topology.links, blocks, strict=True):
        for offer in parts.links if link.name in wanted else ():
            new = LINKS[offer.name]
            no_worse = new.bandwidth_Bps >= link.bandwidth_Bps and new.latency_s <= link.latency_s
            better = new.bandwidth_Bps > link.bandwidth_Bps or new.latency_s < link.latency_s
            wired = link.medium is None and link.duplex != "half"
            if not ((no_worse and better) or (not wired and new.bandwidth_Bps >= link.bandwidth_Bps)):
                continue
            if not all(_fits(topology, end, offer) for end in (link.a, link.b)):
                continue
            overrides = {f"topology.links.{link.name}": {"between": block["between"], "type": offer.name}}
            yield _purchase(link.name, offer, overrides)


def _fits(topology: Topology, end: str, offer: Offer) -> bool:
    device = topology.nodes[end].device
    return device is None or device.name == "custom" or any(fnmatchcase(device.name, fit) for fit in offer.fits)


def _new_devices(topology: Topology, parts: Parts, wanted: set[str]) -> Iterator[Change]:
    for name in topology.workers:
        device = topology.nodes[name].device
        assert device is not None, "a worker has a device"
        for offer in parts.devices if name in wanted else ():
            new = DEVICES[offer.name]
            faster = new.flops_per_s > device.flops_per_s and new.operator_overhead_s <= device.operator_overhead_s
            steadier = device.straggler is not None and new.flops_per_s >= device.flops_per_s
            if not faster and not steadier:
                continue
            block = topology.document["nodes"][name] or {}
            replaced = {*DEVICE_KEYS} - {"price_per_hour"}  # which is assumed to stay
            kept = {key: value for key, value in block.items() if key not in replaced}
            yield _purchase(name, offer, {f"topology.nodes.{name}": kept | {"device": offer.name}})


def _purchase(part: str, offer: Offer, overrides: Mapping[str, Any]) -> Change:
    return Change("purchase", part, f"{offer.name} for {part}", overrides, offer.price_usd, offer.name)
