"""Claims about `ad_psgd`: pairs are drawn and depend on timing, so no simple loop is equivalent."""

from __future__ import annotations

import numpy as np

from simcluster.overlays import overlay_of
from simcluster.overlays.overlay import Matrix
from simcluster.verify.claim import Claim, Settings
from simcluster.verify.faults import GOES_ON


def payload_bytes(size: int, model_bytes: int, steps: int, settings: Settings) -> int:
    """Each asking rank sends a model per step and gets one back; with output "mean", a ring all-reduce at the end."""
    asked = steps * len(overlay_of(settings["overlay"], size, seed=0).asking) if size > 1 else 0
    return 2 * asked * model_bytes + (2 * (size - 1) * model_bytes if settings["output"] == "mean" else 0)


def mixing(size: int, number: int, settings: Settings) -> Matrix:
    """Average one pair half and half: each asking rank with each of its partners in turn; identity for all others."""
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
    # A restarted rank rejoins: its requests are answered, and it is asked again once it answers.
    outcomes={**GOES_ON, "restart of a worker": "ends well", "restart of the server": "ends well"},
)
