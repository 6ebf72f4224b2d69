"""Overlays: the neighbours of each rank in a decentralized algorithm, independent of the network below.

A name, a mapping, a file or a networkx graph (setting.py) becomes an `Overlay` of neighbours and weights, which every
rank computes by itself.
"""

from simcluster.overlays.gossip import Swapped, mix, swap
from simcluster.overlays.graph_file import from_graph
from simcluster.overlays.neighbourhood import Neighbourhood
from simcluster.overlays.overlay import Overlay, Round, spectral_gap
from simcluster.overlays.setting import KINDS, overlay_of
from simcluster.overlays.types import (
    AnyOverlay,
    BalancedOverlay,
    FixedOverlay,
    StaticOverlay,
    World,
    moving,
    overlay_for,
    unbalanced,
    unfixed,
)

__all__ = [
    "KINDS",
    "AnyOverlay",
    "BalancedOverlay",
    "FixedOverlay",
    "Neighbourhood",
    "Overlay",
    "Round",
    "StaticOverlay",
    "Swapped",
    "World",
    "from_graph",
    "mix",
    "moving",
    "overlay_for",
    "overlay_of",
    "spectral_gap",
    "swap",
    "unbalanced",
    "unfixed",
]
