"""Topologies: what a cluster consists of, read from a file and checked.

`load` reads one and `Topology` is what it gives; `generators` makes regular ones, `draw_html` draws one,
`describe` tells what a user should know about it.
"""

from __future__ import annotations

from simcluster.topology.draw.draw import draw_svg
from simcluster.topology.draw.facts import describe
from simcluster.topology.draw.page import draw_html
from simcluster.topology.model.device import Device
from simcluster.topology.model.model import Hop, Link, Node, Topology
from simcluster.topology.model.profile import Profile, profile_block
from simcluster.topology.model.stragglers import Straggler
from simcluster.topology.read.read import load, loads

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
