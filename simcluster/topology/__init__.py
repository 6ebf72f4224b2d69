"""Topologies: descriptions of a cluster, read from a file and checked.

`load` reads a file and returns a `Topology`; `star`, `ring`, `chain`, `complete`, `torus` and `two_sites` make regular
ones; `draw_html` draws one, `describe` reports what a user should know about it.
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
from simcluster.topology.regular import chain, complete, ring, star, torus, two_sites

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
    "load",
    "loads",
    "profile_block",
    "ring",
    "star",
    "torus",
    "two_sites",
]
