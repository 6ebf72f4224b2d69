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
from simcluster.documents.shipped import parts_path
from simcluster.documents.yaml import Document
from simcluster.errors import Problem, UsageError, nearest
from simcluster.topology import Topology
from simcluster.topology.presets.links import DEVICES, LINKS
from simcluster.topology.read.devices import DEVICE_KEYS
from simcluster.what_if.perturb import Change

_PRICE = re.compile(r"([0-9]+(?:\.[0-9]+)?) USD")
_LINK_KEYS = ("price", "fits")
_KEPT_OF_LINKS = ("between",)
_KEPT_OF_NODES = ("price_per_hour",)
"""Keys of a node that a new device keeps: its price per hour is assumed to stay."""


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
    document = yaml_lines.load(path)
    if not isinstance(document.data, dict):
        raise UsageError(document.problem((), expected="a mapping: links and devices, each type with its price"))
    problems = [
        document.problem((key,), found="unknown key", expected=nearest(str(key), ("links", "devices")), at_key=True)
        for key in document.data
        if key not in ("links", "devices")
    ]
    links = tuple(_offers(document, "links", LINKS, _LINK_KEYS, problems))
    devices = tuple(_offers(document, "devices", DEVICES, ("price",), problems))
    if problems:
        raise UsageError(problems)
    return Parts(links, devices)


def _offers(
    document: Document, kind: str, known: Mapping[str, Any], keys: tuple[str, ...], problems: list[Problem]
) -> Iterator[Offer]:
    block = document.data.get(kind) or {}
    if not isinstance(block, dict):
        problems.append(document.problem((kind,), expected="a mapping: each type with its price"))
        return
    for name, offer in block.items():
        before = len(problems)
        if name not in known:
            found, expected = f"unknown type of {kind}", nearest(str(name), known)
            problems.append(document.problem((kind, name), found=found, expected=expected, at_key=True))
        if not isinstance(offer, dict):
            problems.append(document.problem((kind, name), expected="its price: {price: 60 USD}"))
            continue
        for key in offer:
            if key not in keys:
                expected = nearest(str(key), keys)
                problems.append(
                    document.problem((kind, name, key), found="unknown key", expected=expected, at_key=True)
                )
        price = _PRICE.fullmatch(str(offer.get("price")))
        if price is None or not float(price[1]):
            problems.append(document.problem((kind, name, "price"), expected="a price above zero, such as 60 USD"))
        fits = offer.get("fits", ["*"])
        if not isinstance(fits, list) or not fits or not all(isinstance(pattern, str) for pattern in fits):
            problems.append(document.problem((kind, name, "fits"), expected="patterns of devices: [mac-*]"))
        if len(problems) == before and price is not None:
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
            replaced = {key: block[key] for key in _KEPT_OF_LINKS} | {"type": offer.name}
            label = f"{offer.name} for {link.name}"
            yield Change(
                "purchase", link.name, label, {f"topology.links.{link.name}": replaced}, offer.price_usd, offer.name
            )


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
            kept = {key: value for key, value in block.items() if key not in DEVICE_KEYS or key in _KEPT_OF_NODES}
            label = f"{offer.name} for {name}"
            overrides = {f"topology.nodes.{name}": kept | {"device": offer.name}}
            yield Change("purchase", name, label, overrides, offer.price_usd, offer.name)
