"""Regular topologies of any size: star, ring, chain, complete, torus, two sites.

Workers are called n0, n1, ... (in a torus n0_0, n0_1, ...), switches sw, sw0, sw1.

A generator is a function with `@generator`. Its arguments are the settings in a file:

- Arguments without a default are whole numbers.
- *bandwidth*, *latency* and arguments with names that end in these are strings with a unit, or
  plain numbers (bytes per second, seconds). A latency is that of one link, one way.
- *device* is a preset's name or the keys of a node, like {"flops": "1 TFLOP/s"}.

A generator raises UsageError if no topology of the requested size exists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations, pairwise
from typing import Any, NamedTuple, TypeVar

from simcluster.errors import UsageError
from simcluster.topology.model.link import Duplex
from simcluster.units import write_bandwidth, write_latency

Given = str | float
KeyValues = Mapping[str, Any]
"""Key -> value of a node or of a link."""
Keys = str | KeyValues

DEVICE = "x86-laptop"
RATE = "1 Gbps"
LATENCY = "50 us"

MOST_WORKERS = 2**20
MOST_LINKS = 2 * MOST_WORKERS
"""Limits on a generated topology, checked before anything is built.

A worker takes about 2 kB, even if it is never used.
"""

Made = dict[str, Any]
"""A document with nodes and links."""

Generator = TypeVar("Generator", bound="Callable[..., TopologyShape]")


class TopologyShape(NamedTuple):
    """A compact form of a document: *nodes* maps names to keys, *links* has (a, b, keys).

    Nodes or links with equal keys share one mapping. *head* has the other keys of the document.
    """

    name: str
    nodes: dict[str, KeyValues]
    links: list[tuple[str, str, KeyValues]]
    head: Mapping[str, Any] = {}

    def document(self) -> Made:
        """Return the document, with a separate dict for each node and link."""
        nodes = {name: dict(keys) for name, keys in self.nodes.items()}
        links = [{"between": [a, b], **keys} for a, b, keys in self.links]
        return {"name": self.name, "nodes": nodes, "links": links, **self.head}


class Recipe(NamedTuple):
    """A generator's *name* and *settings*, which make a document; *head* has its other keys."""

    name: str
    settings: Mapping[str, Any]
    head: Mapping[str, Any]

    def shape(self) -> TopologyShape:
        return GENERATORS[self.name](**self.settings)._replace(head=self.head)

    def document(self) -> Made:
        return self.shape().document()


GENERATORS: dict[str, Callable[..., TopologyShape]] = {}
"""Name -> generator: in a file `generator: NAME`, in Python `Topology.NAME`."""


def generator(make: Generator) -> Generator:
    """Add *make* to GENERATORS; use it as a decorator."""
    GENERATORS[make.__name__] = make
    return make


@generator
def star(
    workers: int, *, bandwidth: Given = RATE, latency: Given = LATENCY, duplex: Duplex = "full", device: Keys = DEVICE
) -> TopologyShape:
    """Connect *workers* to one switch: a message crosses two links."""
    names = _names(workers, at_least=1)
    nodes = _workers(names, device) | {"sw": {"kind": "switch"}}
    links = _links(((name, "sw") for name in names), bandwidth, latency, duplex)
    return TopologyShape(f"star-{workers}", nodes, links)


@generator
def ring(
    workers: int, *, bandwidth: Given = RATE, latency: Given = LATENCY, duplex: Duplex = "full", device: Keys = DEVICE
) -> TopologyShape:
    """Link each of *workers* (at least 3) to the next, and the last to the first."""
    names = _names(workers, at_least=3)
    links = _links(_closed(names), bandwidth, latency, duplex)
    return TopologyShape(f"ring-{workers}", _workers(names, device), links)


@generator
def chain(
    workers: int, *, bandwidth: Given = RATE, latency: Given = LATENCY, duplex: Duplex = "full", device: Keys = DEVICE
) -> TopologyShape:
    """Link each of *workers* to the next."""
    names = _names(workers, at_least=1)
    links = _links(pairwise(names), bandwidth, latency, duplex)
    return TopologyShape(f"chain-{workers}", _workers(names, device), links)


@generator
def complete(
    workers: int, *, bandwidth: Given = RATE, latency: Given = LATENCY, duplex: Duplex = "full", device: Keys = DEVICE
) -> TopologyShape:
    """Link each of *workers* to every other."""
    if workers * (workers - 1) // 2 > MOST_LINKS:
        raise UsageError(f"{workers} workers, each with a link to every other: at most {MOST_LINKS} links")
    names = _names(workers, at_least=1)
    links = _links(combinations(names, 2), bandwidth, latency, duplex)
    return TopologyShape(f"complete-{workers}", _workers(names, device), links)


@generator
def torus(
    rows: int,
    columns: int,
    *,
    bandwidth: Given = RATE,
    latency: Given = LATENCY,
    duplex: Duplex = "full",
    device: Keys = DEVICE,
) -> TopologyShape:
    """Link a grid of workers into rings, one for each row and each column.

    A row or column of two workers has one link; a row or column of one worker has none.
    """
    if rows < 1 or columns < 1:
        raise UsageError(f"a torus of {rows} x {columns}: at least 1 x 1")
    if rows * columns > MOST_WORKERS:
        raise UsageError(f"a torus of {rows} x {columns}: at most {MOST_WORKERS} workers")
    names = [[f"n{row}_{column}" for column in range(columns)] for row in range(rows)]
    pairs = [pair for line in [*names, *zip(*names, strict=True)] for pair in _closed(line)]
    nodes = _workers([name for row in names for name in row], device)
    return TopologyShape(f"torus-{rows}x{columns}", nodes, _links(pairs, bandwidth, latency, duplex))


@generator
def two_sites(
    workers_a: int,
    workers_b: int,
    *,
    bandwidth: Given = RATE,
    latency: Given = LATENCY,
    wan_bandwidth: Given = "100 Mbps",
    wan_latency: Given = "20 ms",
    duplex: Duplex = "full",
    device: Keys = DEVICE,
) -> TopologyShape:
    """Join two stars, around sw0 and sw1, by one slow link between their switches."""
    if workers_a < 1 or workers_b < 0:
        raise UsageError(f"{workers_a} and {workers_b} workers: at least 1 and 0")
    names = _names(workers_a + workers_b, at_least=1)
    sites = {name: int(index >= workers_a) for index, name in enumerate(names)}
    nodes: dict[str, KeyValues] = {}
    for number, of_site in enumerate((names[:workers_a], names[workers_a:])):
        nodes |= _workers(of_site, device, site=f"site {number}")
    nodes |= {f"sw{site}": {"kind": "switch", "site": f"site {site}"} for site in (0, 1)}
    links = _links(((name, f"sw{site}") for name, site in sites.items()), bandwidth, latency, duplex)
    links += _links([("sw0", "sw1")], wan_bandwidth, wan_latency, duplex)
    return TopologyShape(f"two-sites-{workers_a}-{workers_b}", nodes, links)


def _closed(line: Sequence[str]) -> list[tuple[str, str]]:
    pairs = list(pairwise(line))
    return [*pairs, (line[-1], line[0])] if len(line) > 2 else pairs


def _names(count: int, at_least: int) -> list[str]:
    if count < at_least:
        raise UsageError(f"{count} workers: at least {at_least}")
    if count > MOST_WORKERS:
        raise UsageError(f"{count} workers: at most {MOST_WORKERS}")
    return [f"n{index}" for index in range(count)]


def _workers(names: Iterable[str], device: Keys, **more: str) -> dict[str, KeyValues]:
    keys = {"device": device} if isinstance(device, str) else dict(device)
    return dict.fromkeys(names, keys | more)


def _links(
    pairs: Iterable[tuple[str, str]], bandwidth: Given, latency: Given, duplex: Duplex
) -> list[tuple[str, str, KeyValues]]:
    bandwidth = bandwidth if isinstance(bandwidth, str) else write_bandwidth(bandwidth)
    latency = latency if isinstance(latency, str) else write_latency(latency)
    keys = {"bandwidth": bandwidth, "latency": latency, "duplex": duplex}
    return [(a, b, keys) for a, b in pairs]
