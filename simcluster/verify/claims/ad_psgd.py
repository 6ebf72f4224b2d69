"""What is claimed of `ad_psgd`: who averages with whom is drawn and timed, so there is no one loop that it equals."""

from __future__ import annotations

import numpy as np

from simcluster.overlays import overlay_of
from simcluster.overlays.overlay import Matrix
from simcluster.verify.claim import Claim, Settings
from simcluster.verify.claims.d_psgd import GOES_ON


def payload_bytes(size: int, model_bytes: int, steps: int, settings: Settings) -> int:
    """One side asks once a step, a model there and a model back; at the end a ring all-reduce, if asked for."""
    asked = steps * len(overlay_of(settings["overlay"], size, seed=0).asking) if size > 1 else 0
    return 2 * asked * model_bytes + (2 * (size - 1) * model_bytes if settings["output"] == "mean" else 0)


def mixing(size: int, number: int, settings: Settings) -> Matrix:
    """Half and half for one pair, here each rank that asks with each of its partners in turn; 1 for all others."""
    graph = overlay_of(settings["overlay"], size, seed=0)
    pairs = [(a, b) for a in sorted(graph.asking) for b in graph.neighbours(a) if b not in graph.asking]
    matrix = np.eye(size)
    if pairs:
        pair = list(pairs[number % len(pairs)])
        matrix[np.ix_(pair, pair)] = 0.5
    return matrix


CLAIM = Claim(
    paper="Lian et al. 2018 (ICML), algorithm 1 and section 3",
    order_free=False,
    variants={"overlay": "star", "output": "mean"},
    payload_bytes=payload_bytes,
    mixing=mixing,
    # Whoever asks again is answered, and whoever answers again is asked: a restarted rank is back.
    outcomes={**GOES_ON, "restart of a worker": "ends well", "restart of the server": "ends well"},
)
