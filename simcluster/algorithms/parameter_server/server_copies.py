"""The number of copies of the parameters that servers and workers hold, and checks of the world
size.

See `Facts`.
"""

from __future__ import annotations

from collections.abc import Callable

from simcluster.algorithms.facts import Settings
from simcluster.algorithms.parameter_server.server import SERVER, check_push, most_of, trainers


def served(setting: str | None = None) -> Callable[[int, Settings], None]:
    """Return a check that the world has a rank that trains, and that the value of *setting*, if
    named, is at most the number of these ranks.
    """

    def check(size: int, settings: Settings) -> None:
        ranks = trainers(size, settings["server_trains"])
        if setting is not None:
            most_of(ranks, setting, settings[setting])

    return check


def drawn_by_all(settings: Settings) -> str:
    """Return why all batches must have the same size: the server draws none. Empty if it trains."""
    return "" if settings.get("server_trains", True) else "a server that only serves draws none; or server_trains: true"


def edp_world(size: int, settings: Settings) -> None:
    served()(size, settings)
    check_push(settings["push"], settings["compression"])


def sync_copies(rank: int, size: int, settings: Settings) -> float:
    compresses = settings.get("compression", "none") != "none"
    if rank != SERVER:
        # A worker holds the outgoing gradients or the weights of the reply, and with a Polyak blend
        # its result. With compression, it also holds a message and a double-precision residual.
        return (1.0 if settings["polyak"] == 1 else 2.0) + (2.5 if compresses else 0.0)
    # At the end of a step, the server holds a gradient from each worker, a snapshot, and a frozen
    # copy of the snapshot per reply. With compression, it also holds each worker's message.
    return (2.5 if compresses else 2.0) * (size - 1) + 1.0


def edp_copies(rank: int, size: int, settings: Settings) -> float:
    if rank != SERVER:
        return 1.0
    # For each worker the server holds either the gradients or the reply, which is a snapshot and a
    # frozen copy. Damping, a blend or restored compressed gradients take one more copy.
    plain = settings["damping"] == "none" and settings.get("push") != "weights"
    return 2.0 * (size - 1) + (0.0 if plain and settings.get("compression", "none") == "none" else 1.0)


def stale_copies(rank: int, size: int, settings: Settings) -> float:
    """Return the number of copies that *rank* holds in ssp, softsync and k_async."""
    if rank != SERVER:
        return 1.0
    # As in edp, plus the server's own gradients, which may wait for those of others. With damping,
    # each gradient is held twice.
    return 2.0 * (size - 1) + 1.0 + (0.0 if settings.get("damping", "none") == "none" else float(size))


def k_sync_copies(rank: int, size: int, settings: Settings) -> float:
    if rank != SERVER:
        return 2.0  # outgoing gradients, and weights that arrive at the same time
    # The server holds K gradients, one late gradient per other rank, its own gradient, and the
    # replies.
    k = settings["k"] or size
    return 3.0 * (size - 1) + max(0.0, k - size) + 1.0
