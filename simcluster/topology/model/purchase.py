"""A single purchase that a plan may propose."""

from __future__ import annotations

from dataclasses import dataclass

from simcluster.topology.model.model import Topology


@dataclass(frozen=True)
class PossiblePurchase:
    """A *part* from the parts list that would replace the link or node at *place*.

    *topology* is the cluster with the part.
    """

    part: str
    place: str
    price_usd: float
    topology: Topology
