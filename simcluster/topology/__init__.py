"""Topologies: descriptions of a cluster, read from a file and checked.

`load` reads a file and returns a `Topology`; `star` and the other functions of `simcluster.topology.presets.generators`
make regular ones, with the same arguments and a `document` that can be written to a file;
`from_networkx` takes a graph. All of these are also static methods of `Topology`;
`draw_html` draws one, `describe` reports what a user should know about it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, ParamSpec

import networkx

from simcluster.errors import in_short
from simcluster.topology.draw.draw import draw_html, draw_svg
from simcluster.topology.draw.facts import describe
from simcluster.topology.model.device import Device, Profile, profile_block
from simcluster.topology.model.model import Hop, Link, Node, Topology
from simcluster.topology.model.stragglers import Straggler
from simcluster.topology.presets import generators
from simcluster.topology.presets.generators import TopologyShape
from simcluster.topology.read.foreign import from_networkx_document
from simcluster.topology.read.read import load, loads

__all__ = [
    "Device",
    "Hop",
    "Link",
    "Node",
    "Profile",
    "Straggler",
    "Topology",
    "chain",
    "complete",
    "describe",
    "draw_html",
    "draw_svg",
    "from_networkx",
    "load",
    "loads",
    "profile_block",
    "ring",
    "star",
    "torus",
    "two_sites",
]

P = ParamSpec("P")


def _read(make: Callable[P, TopologyShape]) -> Callable[P, Topology]:
    @wraps(make)
    def read(*args: P.args, **kwargs: P.kwargs) -> Topology:
        return loads(make(*args, **kwargs).document())

    read.__module__ = __name__
    read.__signature__ = signature(make).replace(return_annotation="Topology")  # type: ignore[attr-defined]
    return read


if TYPE_CHECKING:  # editors and type checkers do not see what the table adds below; a test compares this list with it
    star = _read(generators.star)
    ring = _read(generators.ring)
    chain = _read(generators.chain)
    complete = _read(generators.complete)
    torus = _read(generators.torus)
    two_sites = _read(generators.two_sites)


def add_generators() -> None:
    """Make each generator of the table a function of this package and a static method of Topology."""
    for name, make in generators.GENERATORS.items():
        globals()[name] = _read(make)
        setattr(Topology, name, staticmethod(globals()[name]))


@in_short
def from_networkx(
    graph: networkx.Graph[Any],
    *,
    device: str | dict[str, Any] | None = None,
    bandwidth: str | None = None,
    latency: str | None = None,
) -> Topology:
    """Return the topology of a networkx *graph*, with attributes of nodes and edges that are the keys of a file.

    *device*, a preset's name or the keys of a node, is for nodes without a device; *bandwidth* and *latency* are for
    edges without one. Other attributes are ignored, and a log line names them; so does one for names of nodes that are
    written differently: "New York" is New_York. Raise UsageError with every problem, as for a directed graph.
    """
    return loads(from_networkx_document(graph, device, {"bandwidth": bandwidth, "latency": latency}))


add_generators()
Topology.from_networkx = staticmethod(from_networkx)
Topology.load = staticmethod(load)
