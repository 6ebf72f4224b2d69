"""The number of copies of the parameters that data-parallel algorithms hold. See `Facts.copies`."""

from __future__ import annotations

from simcluster.algorithms.facts import Settings, StateShares, all_reduce_messages


def all_reduce_copies(rank: int, size: int, settings: Settings) -> float:
    # Each step in flight holds a gradient, its sum, and the messages going out and coming in.
    # Accumulation holds one more gradient.
    more, steps = 1.0 if settings["accumulate"] > 1 else 0.0, 1.0 + float(settings["staleness"])
    if settings["compression"] != "none":
        # The messages sent and received are compressed to at most half the size. The residual is in
        # double precision, so it counts as 2 copies.
        return steps * (1.0 + 2.0 + 0.5 * (size - 1)) + 2.0 + more
    # The naive schedule allocates the sum only after its own messages have left.
    total = 0.0 if settings["schedule"] == "naive" else 1.0
    messages = all_reduce_messages(1.0, size, settings["schedule"], settings.get("shares", ()))
    return steps * (1.0 + total + messages) + more


def one_bit_adam_copies(rank: int, size: int, settings: Settings) -> float:
    # m, v and a new m; during warm-up also the vectors of an all-reduce, afterwards a
    # double-precision residual and the signs.
    return 3.0 + max(2.0 + all_reduce_messages(1.0, size, settings["schedule"]), 4.0)


def zero_shares(size: int, settings: Settings) -> StateShares:
    return StateShares(*(1.0 / size if settings["stage"] >= stage else 1.0 for stage in (3, 2, 1)))
