"""Topologies: what a cluster consists of, read from a file and checked.

`load` reads one and `Topology` is what it gives; `generators` makes regular ones, `draw_html` draws one,
`describe` tells what a user should know about it.
"""

from __future__ import annotations

from simcluster.topology.device import Device
from simcluster.topology.draw import draw_svg
from simcluster.topology.facts import describe
from simcluster.topology.model import Hop, Link, Node, Topology
from simcluster.topology.page import draw_html
from simcluster.topology.profile import Profile, profile_block
from simcluster.topology.read import load, loads
from simcluster.topology.stragglers import Straggler

__all__ = [
    "Device",
    "Hop",
    "Link",
    "Node",
    "Profile",
    "Straggler",
    "Topology",
    "describe",
    "draw_html",
    "draw_svg",
    "load",
    "loads",
    "profile_block",
]
