"""Topologies: descriptions of a cluster, read from a file and checked.

`load` reads a file and returns a `Topology`. `star` and the other generators return a regular
topology; they take the arguments of their namesakes in `simcluster.topology.presets.generators`.
The `document` of a topology can be written to a file. `from_networkx` converts a graph. All of
these functions are also static methods of `Topology`. `draw_html` draws a topology, and `describe`
reports what a user should know about it.
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
from simcluster.topology.model.link import Hop, Link
from simcluster.topology.model.model import Node, Topology
from simcluster.topology.model.stragglers import Straggler
from simcluster.topology.presets import generators
from simcluster.topology.presets.generators import TopologyShape
from simcluster.topology.read.defaults import as_overrides
from simcluster.topology.read.foreign import from_graph
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


# Editors and type checkers do not see the functions that `add_generators` adds. A test compares
# this list with GENERATORS.
if TYPE_CHECKING:
    star = _read(generators.star)
    ring = _read(generators.ring)
    chain = _read(generators.chain)
    complete = _read(generators.complete)
    torus = _read(generators.torus)
    two_sites = _read(generators.two_sites)


def add_generators() -> None:
    """Make each of GENERATORS a function of this package and a static method of Topology."""
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
    """Return the topology of a networkx *graph*.

    The attributes of its nodes and edges are named like the keys of nodes and links in a file.

    Nodes without a device get *device*, the name of a preset or the keys of a node. Edges without a
    bandwidth or a latency get *bandwidth* and *latency*. Other attributes are ignored, and a log
    line names them. Another log line lists the node names that had to change: "New York" becomes
    New_York. Raise UsageError with all problems, for instance if the graph is directed.
    """
    defaults = as_overrides({"device": device, "bandwidth": bandwidth, "latency": latency})
    return loads(from_graph(graph), overrides=defaults)


add_generators()
Topology.from_networkx = staticmethod(from_networkx)
Topology.load = staticmethod(load)
