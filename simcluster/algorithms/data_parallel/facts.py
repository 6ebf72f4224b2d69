"""Copies of the parameters that data-parallel algorithms hold: see `Facts.copies`."""

from __future__ import annotations

from simcluster.algorithms.facts import Settings, StateShares, all_reduce_messages


def all_reduce_copies(rank: int, size: int, settings: Settings) -> float:
    # Per step in flight: a vector, its sum, and the data going out and coming in meanwhile. Plus what accumulates.
    more, steps = 1.0 if settings["accumulate"] > 1 else 0.0, 1.0 + float(settings["staleness"])
    if settings["compression"] != "none":
        # A mean of compressed forms, each at most half as large, out and in; the residual is in double precision.
        return steps * (1.0 + 2.0 + 0.5 * (size - 1)) + 2.0 + more
    total = 0.0 if settings["schedule"] == "naive" else 1.0  # naive adds up when what it sent has left
    return steps * (1.0 + total + all_reduce_messages(1.0, size, settings["schedule"])) + more


def one_bit_adam_copies(rank: int, size: int, settings: Settings) -> float:
    # m and v, and a new m. During warm-up an all-reduce; afterwards a double-precision residual and bits.
    return 3.0 + max(2.0 + all_reduce_messages(1.0, size, settings["schedule"]), 4.0)


def zero_shares(size: int, settings: Settings) -> StateShares:
    return StateShares(*(1.0 / size if settings["stage"] >= stage else 1.0 for stage in (3, 2, 1)))
