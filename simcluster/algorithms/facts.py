"""What the algorithms hold beside a replica, in copies of the trainable parameters: the same size as gradients.

Messages are counted where they are held: a send holds a frozen copy until it has left, a message that arrived is held
until used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from simcluster.overlays import overlay_of

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
    # Of every worker either its gradients, or its reply: a snapshot and the frozen copy. Damping, a blend or what was
    # restored from a small form is one more.
    plain = settings["damping"] == "none" and settings.get("push") != "weights"
    return 2.0 * (size - 1) + (0.0 if plain and settings.get("compression", "none") == "none" else 1.0)


def _stale(rank: int, size: int, settings: Settings) -> float:
    """ssp, softsync and k_async."""
    if rank != SERVER:
        return 1.0
    # As edp's, and the server's own gradients, which may wait for others; those that damping divides are held twice.
    return 2.0 * (size - 1) + 1.0 + (0.0 if settings.get("damping", "none") == "none" else float(size))


def _k_sync(rank: int, size: int, settings: Settings) -> float:
    if rank != SERVER:
        return 2.0  # gradients on their way out, and weights that came meanwhile
    # K gradients, one of every other rank that is too late, the server's own, and the replies.
    k = settings["k"] or size
    return 3.0 * (size - 1) + max(0.0, k - size) + 1.0


def _all_reduce_dp(rank: int, size: int, settings: Settings) -> float:
    # Of each step under way one vector, its sum, and what is out and in meanwhile; beside them, what accumulates.
    more, steps = 1.0 if settings["accumulate"] > 1 else 0.0, 1.0 + float(settings["staleness"])
    if settings["compression"] != "none":
        # A mean is made of small forms, at most half as large; a residual is kept in double precision.
        return steps * (1.0 + _of_a_sum(size, settings)) + 2.0 + more
    if settings["schedule"] == "ring":
        beside = 1.0 + (2.0 / size if size > 1 else 0.0)  # the sum, a chunk out and a chunk in
    elif settings["schedule"] == "naive":
        beside = 2.0 * (size - 1)  # everybody's, and frozen ones to everybody
    else:
        beside = 3.0  # the sum; as much out and as much in
    return steps * (1.0 + beside) + more


def _of_a_sum(size: int, settings: Settings) -> float:
    """Beside what is averaged and its mean: chunks out and in; or small forms, at most half as large, of and to all."""
    if settings["compression"] != "none":
        return 2.0 + 0.5 * (size - 1)
    if settings["schedule"] == "naive":
        return 2.0 * (size - 1)  # everybody's, and frozen ones to everybody
    return 2.0 / size if settings["schedule"] == "ring" and size > 1 else 2.0


def _local_sgd(rank: int, size: int, settings: Settings) -> float:
    return 3.0 + max(1.0, _of_a_sum(size, settings))  # the old mean, the change, the sum; then the new mean


def _diloco(rank: int, size: int, settings: Settings) -> float:
    # theta, m, the outer gradient, its sum; then its mean, and theta and m anew.
    return 4.0 + max(3.0, _of_a_sum(size, settings))


def _streaming_diloco(rank: int, size: int, settings: Settings) -> float:
    # theta, m, the weights in one piece; at the end every fragment is under way, and one makes its step.
    return 5.0 + _of_a_sum(size, settings) + 2.0 / float(settings["fragments"])


def _fedbuff(rank: int, size: int, settings: Settings) -> float:
    # Workers: where they began, the change, and what travels. Server: the weights twice, buffer, own change, a sum.
    return 3.0 if rank != SERVER else 5.0 + 2.0 * (size - 1)


def _async_diloco(rank: int, size: int, settings: Settings) -> float:
    # As above; the server has momentum as well, and makes all three anew at once.
    return 3.0 if rank != SERVER else 8.0 + 2.0 * (size - 1)


def _easgd(rank: int, size: int, settings: Settings) -> float:
    # Weights in one piece, the force on them, what comes of it, and what travels or the centre.
    asynchronous = settings["form"] == "asynchronous"
    return 5.0 + (2.0 * (size - 1) if asynchronous and rank == SERVER else 0.0)


def _sparta(rank: int, size: int, settings: Settings) -> float:
    # The weights in one piece, before and after; of the coordinates numbers of 8 bytes, values, sum and message.
    return 2.0 + 5.0 * float(settings["fraction"])


def _demo(rank: int, size: int, settings: Settings) -> float:
    # Momentum before and after, gradients in one piece, Q; everybody's coefficients with their places.
    share = min(float(settings["top_k"]) / float(settings["chunk"]), 1.0)
    return 4.0 + 1.5 * share * (2.0 * (size - 1) + 1.0)


def _parted(rank: int, size: int, settings: Settings) -> float:
    # When weights are gathered: rank 0 holds everybody's, anybody else a frozen copy of its own.
    return (1.0 if rank == 0 else 1.0 / size) if size > 1 else 0.0


def _degree(rank: int, size: int, settings: Settings) -> int:
    """How many neighbours *rank* sends to and receives from in a round, of the first ones the most."""
    overlay = overlay_of(settings["overlay"], size, seed=0)
    rounds = range(min(overlay.window, 16))
    return max(len(overlay.receivers(rank, number)) + len(overlay.senders(rank, number)) for number in rounds)


def _d_psgd(rank: int, size: int, settings: Settings) -> float:
    # A frozen copy to every neighbour and a message from each; then their mean.
    return 1.0 + _degree(rank, size, settings)


def _choco_sgd(rank: int, size: int, settings: Settings) -> float:
    # A copy of every neighbour and oneself, a difference, a new mean; differences under way, restored one by one.
    return 4.0 + 1.5 * _degree(rank, size, settings)


def _sgp(rank: int, size: int, settings: Settings) -> float:
    return 2.0 + _degree(rank, size, settings)  # as above, of its own share of x


def _gradient_tracking(rank: int, size: int, settings: Settings) -> float:
    # All of it twice, of weights and estimates; the estimate and the last gradient beside, and what came from each.
    overlay = overlay_of(settings["overlay"], size, seed=0)
    flows = len(overlay.neighbours(rank)) if overlay.symmetric and not overlay.changing else 0
    return 2.0 * (1.0 + _degree(rank, size, settings)) + 2.0 + flows


def _ad_psgd(rank: int, size: int, settings: Settings) -> float:
    # x, x^ and a new x; of whoever asks or is asked a message and an answer.
    overlay = overlay_of(settings["overlay"], size, seed=0)
    at_once = 1 if rank in overlay.asking else sum(other in overlay.asking for other in overlay.neighbours(rank))
    return 3.0 + 2.0 * at_once


def _one_bit_adam(rank: int, size: int, settings: Settings) -> float:
    # m and v, and m anew; an all-reduce of the warm-up, or later a residual in double precision and bits.
    return 3.0 + max(2.0 + (2.0 / size if size > 1 else 0.0), 4.0)


def _zero(rank: int, size: int, settings: Settings) -> float:
    # A copy of what it updates; of each step under way the gradient in one piece, its sum, and what is out and in
    # meanwhile; weights on their way. From stage 2 on that is a layer or two, which is not known here.
    steps = 1.0 + float(settings["staleness"])
    if settings["stage"] < 2:
        return (1.0 / size if settings["stage"] else 1.0) + 3.0 * steps + 1.0
    return (1.0 if settings["stage"] == 2 else 0.0) / size + steps / size


class Kept(NamedTuple):
    """The shares of weights, gradients and optimizer's state that a rank keeps of a whole model's."""

    weights: float = 1.0
    gradients: float = 1.0
    optimizer: float = 1.0


def kept(algorithm: str, size: int, settings: Settings) -> Kept:
    """All of everything, but for an algorithm that parts them among *size* ranks."""
    if algorithm in ("pipeline", "tensor_parallel"):
        # At least, and on average: stages are balanced by work, and what is not split everybody has.
        return Kept(1.0 / size, 1.0 / size, 1.0 / size)
    if algorithm != "zero":
        return Kept()
    shares = [1.0 / size if settings["stage"] >= stage else 1.0 for stage in (3, 2, 1)]
    return Kept(*shares)


COPIES: Mapping[str, Copies] = {
    "ad_psgd": _ad_psgd,
    "all_reduce_dp": _all_reduce_dp,
    "async_diloco": _async_diloco,
    "choco_sgd": _choco_sgd,
    "d_psgd": _d_psgd,
    "demo": _demo,
    "diloco": _diloco,
    "easgd": _easgd,
    "edp": _edp,
    "fedbuff": _fedbuff,
    "gradient_tracking": _gradient_tracking,
    "k_async": _stale,
    "k_sync": _k_sync,
    "local_sgd": _local_sgd,
    "pipeline": _parted,
    "sgp": _sgp,
    "softsync": _stale,
    "one_bit_adam": _one_bit_adam,
    "sparta": _sparta,
    "ssp": _stale,
    "streaming_diloco": _streaming_diloco,
    "sync_ps": _sync_ps,
    "tensor_parallel": _parted,
    "zero": _zero,
}
"""By the algorithm's name. Of one's own algorithms nothing is known."""
