"""Copies of the parameters that gossip holds on its overlay. See `Facts.copies`."""

from __future__ import annotations

from simcluster.algorithms.facts import Settings
from simcluster.overlays import overlay_of

SUMS_STAY = "its ranks' states add up to an invariant, which other ranks would break"


def _degree(rank: int, size: int, settings: Settings) -> int:
    """Return the most messages that *rank* sends and receives in one of the first rounds."""
    overlay = overlay_of(settings["overlay"], size, seed=0)
    rounds = range(min(overlay.window, 16))
    return max(len(overlay.receivers(rank, number)) + len(overlay.senders(rank, number)) for number in rounds)


def d_psgd_copies(rank: int, size: int, settings: Settings) -> float:
    # A frozen copy to every neighbour and a message from each; then their mean.
    return 1.0 + _degree(rank, size, settings)


def choco_sgd_copies(rank: int, size: int, settings: Settings) -> float:
    # A copy per neighbour and the rank's own, a difference, a new mean; differences in flight, restored one by one.
    return 4.0 + 1.5 * _degree(rank, size, settings)


def sgp_copies(rank: int, size: int, settings: Settings) -> float:
    return 2.0 + _degree(rank, size, settings)  # as D-PSGD, plus the share of x that the rank keeps


def gradient_tracking_copies(rank: int, size: int, settings: Settings) -> float:
    # Twice those of D-PSGD, for weights and estimates. Plus the estimate, the last gradient, and a flow per neighbour.
    overlay = overlay_of(settings["overlay"], size, seed=0)
    flows = len(overlay.neighbours(rank)) if overlay.symmetric and not overlay.changing else 0
    return 2.0 * (1.0 + _degree(rank, size, settings)) + 2.0 + flows


def ad_psgd_copies(rank: int, size: int, settings: Settings) -> float:
    # x, x^ and a new x; per simultaneous partner a message and an answer.
    overlay = overlay_of(settings["overlay"], size, seed=0)
    asking = overlay.asking
    at_once = 1 if rank in asking else len(asking.intersection(overlay.neighbours(rank)))
    return 3.0 + 2.0 * at_once
