"""Copies of the parameters that gossip holds, on its overlay: see `Facts.copies`."""

from __future__ import annotations

from simcluster.algorithms.facts import Settings
from simcluster.overlays import overlay_of

SUMS_STAY = "what its ranks have sums up to something that is kept, and would not with others"


def _degree(rank: int, size: int, settings: Settings) -> int:
    """Return the most neighbours that *rank* sends to and receives from in one of the first rounds."""
    overlay = overlay_of(settings["overlay"], size, seed=0)
    rounds = range(min(overlay.window, 16))
    return max(len(overlay.receivers(rank, number)) + len(overlay.senders(rank, number)) for number in rounds)


def d_psgd_copies(rank: int, size: int, settings: Settings) -> float:
    # A frozen copy to every neighbour and a message from each; then their mean.
    return 1.0 + _degree(rank, size, settings)


def choco_sgd_copies(rank: int, size: int, settings: Settings) -> float:
    # A copy of every neighbour and oneself, a difference, a new mean; differences in flight, restored one by one.
    return 4.0 + 1.5 * _degree(rank, size, settings)


def sgp_copies(rank: int, size: int, settings: Settings) -> float:
    return 2.0 + _degree(rank, size, settings)  # as D-PSGD's, and the share of x that the rank keeps


def gradient_tracking_copies(rank: int, size: int, settings: Settings) -> float:
    # All of D-PSGD's twice, of weights and estimates; besides, the estimate, the last gradient, and the flow of each.
    overlay = overlay_of(settings["overlay"], size, seed=0)
    flows = len(overlay.neighbours(rank)) if overlay.symmetric and not overlay.changing else 0
    return 2.0 * (1.0 + _degree(rank, size, settings)) + 2.0 + flows


def ad_psgd_copies(rank: int, size: int, settings: Settings) -> float:
    # x, x^ and a new x; per partner at once a message and an answer.
    overlay = overlay_of(settings["overlay"], size, seed=0)
    at_once = 1 if rank in overlay.asking else sum(other in overlay.asking for other in overlay.neighbours(rank))
    return 3.0 + 2.0 * at_once
