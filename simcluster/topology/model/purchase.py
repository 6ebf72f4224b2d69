"""A single purchase that a plan may weigh."""

from __future__ import annotations

from dataclasses import dataclass

from simcluster.topology.model.model import Topology


@dataclass(frozen=True)
class PossiblePurchase:
    """A *part* of the list, the *place* of the link or node that it replaces, and the *topology* with it."""

    part: str
    place: str
    price_usd: float
    topology: Topology
