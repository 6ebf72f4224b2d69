"""What the algorithms hold beside a replica, in copies of the trainable parameters: the same size as gradients.

This file knows how many messages an algorithm keeps at once. It must not know sizes, devices or backends. Messages are
counted where they are held: a send holds a frozen copy until it has left, a message that arrived is held until used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Settings = Mapping[str, Any]
Copies = Callable[[int, int, Settings], float]
"""(rank, world size, the algorithm's settings) -> copies held at once, at the most crowded moment."""

SERVER = 0


def _sync_ps(rank: int, size: int, settings: Settings) -> float:
    if rank != SERVER:
        # The gradients on their way out, or the weights that came back; with Polyak's mean, the blend as well.
        return 1.0 if settings["polyak"] == 1 else 2.0
    # At the end of a step: a gradient from each worker, a snapshot, and a frozen copy of it for each reply.
    return 2.0 * (size - 1) + 1.0


def _edp(rank: int, size: int, settings: Settings) -> float:
    if rank != SERVER:
        return 1.0
    # Of every worker either its gradients, or its reply: a snapshot and the frozen copy. Damping makes one more.
    return 2.0 * (size - 1) + (0.0 if settings["damping"] == "none" else 1.0)


def _all_reduce_dp(rank: int, size: int, settings: Settings) -> float:
    if settings["schedule"] == "naive":
        # One vector, everybody's, and frozen ones to everybody.
        return 2.0 * (size - 1) + 1.0
    # One vector and its sum, a chunk out and a chunk in.
    return 2.0 + (2.0 / size if size > 1 else 0.0)


COPIES: Mapping[str, Copies] = {"all_reduce_dp": _all_reduce_dp, "edp": _edp, "sync_ps": _sync_ps}
"""By the algorithm's name. Of one's own algorithms nothing is known."""
