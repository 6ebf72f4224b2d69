"""Copies of the parameters that servers and workers hold, and worlds that they can serve: see `Facts`."""

from __future__ import annotations

from collections.abc import Callable

from simcluster.algorithms.facts import Settings
from simcluster.algorithms.parameter_server.server import SERVER, check_push, most_of, trainers


def served(setting: str | None = None) -> Callable[[int, Settings], None]:
    """Return a check of a world with a parameter server, where *setting* is a number of ranks that train."""

    def check(size: int, settings: Settings) -> None:
        ranks = trainers(size, settings["server_trains"])
        if setting is not None:
            most_of(ranks, setting, settings[setting])

    return check


def edp_world(size: int, settings: Settings) -> None:
    served()(size, settings)
    check_push(settings["push"], settings["compression"])


def k_sync_world(size: int, settings: Settings) -> None:
    served(None if settings["batch"] else "k")(size, settings)


def sync_copies(rank: int, size: int, settings: Settings) -> float:
    if rank != SERVER:
        # The gradients on their way out, or the weights in reply; with Polyak's mean, the blend as well.
        return 1.0 if settings["polyak"] == 1 else 2.0
    # At the end of a step: a gradient from each worker, a snapshot, and a frozen copy of it for each reply.
    return 2.0 * (size - 1) + 1.0


def edp_copies(rank: int, size: int, settings: Settings) -> float:
    if rank != SERVER:
        return 1.0
    # Per worker either its gradients, or its reply: a snapshot and the frozen copy. Damping, a blend or gradients
    # restored from a small form take one more.
    plain = settings["damping"] == "none" and settings.get("push") != "weights"
    return 2.0 * (size - 1) + (0.0 if plain and settings.get("compression", "none") == "none" else 1.0)


def stale_copies(rank: int, size: int, settings: Settings) -> float:
    """Return those of ssp, softsync and k_async."""
    if rank != SERVER:
        return 1.0
    # As edp's, and the server's own gradients, which may wait for others; those that damping divides are held twice.
    return 2.0 * (size - 1) + 1.0 + (0.0 if settings.get("damping", "none") == "none" else float(size))


def k_sync_copies(rank: int, size: int, settings: Settings) -> float:
    if rank != SERVER:
        return 2.0  # gradients on their way out, and weights that arrived meanwhile
    # K gradients, one of every other rank that is too late, the server's own, and the replies.
    k = settings["k"] or size
    return 3.0 * (size - 1) + max(0.0, k - size) + 1.0
