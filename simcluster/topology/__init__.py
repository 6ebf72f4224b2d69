"""Topologies: what a cluster consists of, read from a file and checked.

`load` reads one and `Topology` is what it gives; `generators` makes regular ones, `draw_html` draws one,
`describe` tells what a user should know about it.
"""

from __future__ import annotations

from simcluster.topology.draw import draw_svg
from simcluster.topology.facts import describe
from simcluster.topology.model import Device, Hop, Link, Node, Straggler, Topology
from simcluster.topology.page import draw_html
from simcluster.topology.read import load, loads

__all__ = [
    "Device",
    "Hop",
    "Link",
    "Node",
    "Straggler",
    "Topology",
    "describe",
    "draw_html",
    "draw_svg",
    "load",
    "loads",
]
