"""Overlays: the neighbours of each rank in a decentralized algorithm, independent of the physical
network.

`setting.py` turns a name, a mapping, a file or a networkx graph into an `Overlay` with neighbours
and weights. Every rank computes the overlay for itself.
"""

from simcluster.overlays.neighbourhood import Neighbourhood as Neighbourhood
from simcluster.overlays.neighbourhood import mix as mix
from simcluster.overlays.neighbourhood import swap as swap
from simcluster.overlays.overlay import Overlay as Overlay
from simcluster.overlays.overlay import spectral_gap as spectral_gap
from simcluster.overlays.setting import KINDS as KINDS
from simcluster.overlays.setting import from_graph as from_graph
from simcluster.overlays.setting import overlay_of as overlay_of
from simcluster.overlays.types import AnyOverlay as AnyOverlay
from simcluster.overlays.types import BalancedOverlay as BalancedOverlay
from simcluster.overlays.types import FixedOverlay as FixedOverlay
from simcluster.overlays.types import StaticOverlay as StaticOverlay
from simcluster.overlays.types import World as World
from simcluster.overlays.types import moving as moving
from simcluster.overlays.types import overlay_for as overlay_for
from simcluster.overlays.types import unbalanced as unbalanced
from simcluster.overlays.types import unfixed as unfixed
