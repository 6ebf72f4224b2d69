"""Copies of the parameters that servers and workers hold, and the world sizes that they can serve. See `Facts`."""

from __future__ import annotations

from collections.abc import Callable

from simcluster.algorithms.facts import Settings
from simcluster.algorithms.parameter_server.server import SERVER, check_push, most_of, trainers


def served(setting: str | None = None) -> Callable[[int, Settings], None]:
    """Return a check of the world size for a parameter server; *setting* counts training ranks."""

    def check(size: int, settings: Settings) -> None:
        ranks = trainers(size, settings["server_trains"])
        if setting is not None:
            most_of(ranks, setting, settings[setting])

    return check


def edp_world(size: int, settings: Settings) -> None:
    served()(size, settings)
    check_push(settings["push"], settings["compression"])


def sync_copies(rank: int, size: int, settings: Settings) -> float:
    if rank != SERVER:
        # The outgoing gradients, or the weights in reply; with the Polyak mean, also the blend.
        return 1.0 if settings["polyak"] == 1 else 2.0
    # At the end of a step: a gradient from each worker, a snapshot, and a frozen copy of it per reply.
    return 2.0 * (size - 1) + 1.0


def edp_copies(rank: int, size: int, settings: Settings) -> float:
    if rank != SERVER:
        return 1.0
    # Per worker its gradients or its reply: a snapshot and the frozen copy. Damping, a blend, or gradients restored
    # from a compressed form take one more.
    plain = settings["damping"] == "none" and settings.get("push") != "weights"
    return 2.0 * (size - 1) + (0.0 if plain and settings.get("compression", "none") == "none" else 1.0)


def stale_copies(rank: int, size: int, settings: Settings) -> float:
    """Return those of ssp, softsync and k_async."""
    if rank != SERVER:
        return 1.0
    # As in edp, plus the server's own gradients, which may wait for others; damped ones are held twice.
    return 2.0 * (size - 1) + 1.0 + (0.0 if settings.get("damping", "none") == "none" else float(size))


def k_sync_copies(rank: int, size: int, settings: Settings) -> float:
    if rank != SERVER:
        return 2.0  # outgoing gradients, and weights that arrived meanwhile
    # K gradients, one late gradient per other rank, the server's own, and the replies.
    k = settings["k"] or size
    return 3.0 * (size - 1) + max(0.0, k - size) + 1.0
