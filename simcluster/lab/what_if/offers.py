"""Find single purchases for a language model: `simcluster plan` ranks placements with each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from simcluster.lab.what_if.perturb import MOST_PARTS, purchases, read_parts
from simcluster.topology import Topology, load
from simcluster.topology.model.purchase import PossiblePurchase


def offers(cluster: Topology, parts: Path | None = None) -> Iterator[PossiblePurchase]:
    """Yield each purchase in the list *parts* that is faster than the current part of *cluster*.

    In a large cluster, only one of several equal parts is replaced.
    """
    links = {link.name: str(link) for link in cluster.links}
    few = len(cluster.nodes) <= MOST_PARTS
    seen = set()
    for change in purchases(cluster, read_parts(parts), {*cluster.workers, *links}):
        now = change.instead, links.get(change.part) or cluster.nodes[change.part].device
        if few or now not in seen:
            seen.add(now)
            overrides = {key.removeprefix("topology."): value for key, value in change.overrides.items()}
            yield PossiblePurchase(
                change.instead, change.part, change.price_usd or 0.0, load(cluster, overrides=overrides)
            )
