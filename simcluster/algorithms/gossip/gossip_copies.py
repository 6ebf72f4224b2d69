"""The number of copies of the parameters that gossip algorithms hold. See `Facts.copies`."""

from __future__ import annotations

from simcluster.algorithms.facts import Settings
from simcluster.overlays import overlay_of

SUMS_STAY = "its ranks' states add up to an invariant, which other ranks would break"


def _degree(rank: int, size: int, settings: Settings) -> int:
    """Return the maximum number of messages that *rank* sends and receives in a round, over the
    first 16 rounds of the overlay at most.
    """
    overlay = overlay_of(settings["overlay"], size, seed=0)
    rounds = range(min(overlay.window, 16))
    return max(len(overlay.receivers(rank, number)) + len(overlay.senders(rank, number)) for number in rounds)


def d_psgd_copies(rank: int, size: int, settings: Settings) -> float:
    # A rank holds a frozen copy for every receiver, a message from every sender, and their mean.
    return 1.0 + _degree(rank, size, settings)


def choco_sgd_copies(rank: int, size: int, settings: Settings) -> float:
    # The copies of all neighbours and of the rank itself, a difference, a new mean, and the
    # differences in flight.
    return 4.0 + 1.5 * _degree(rank, size, settings)


def sgp_copies(rank: int, size: int, settings: Settings) -> float:
    return 2.0 + _degree(rank, size, settings)  # as D-PSGD, plus the share of x that the rank keeps


def gradient_tracking_copies(rank: int, size: int, settings: Settings) -> float:
    # Twice the copies of D-PSGD, for weights and estimates, plus the estimate, the last gradient
    # and a flow per neighbour.
    overlay = overlay_of(settings["overlay"], size, seed=0)
    flows = len(overlay.neighbours(rank)) if overlay.symmetric and not overlay.changing else 0
    return 2.0 * (1.0 + _degree(rank, size, settings)) + 2.0 + flows


def ad_psgd_copies(rank: int, size: int, settings: Settings) -> float:
    # x, x^ and a new x, plus a message and an answer for each partner served at the same time.
    overlay = overlay_of(settings["overlay"], size, seed=0)
    asking = overlay.asking
    at_once = 1 if rank in asking else len(asking.intersection(overlay.neighbours(rank)))
    return 3.0 + 2.0 * at_once
