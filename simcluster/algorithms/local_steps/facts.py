"""Copies of the parameters that algorithms with local steps hold. See `Facts.copies`."""

from __future__ import annotations

from simcluster.algorithms.facts import Settings, all_reduce_messages
from simcluster.algorithms.parameter_server.server import SERVER


def _of_a_sum(size: int, settings: Settings) -> float:
    """Return those of the messages of a mean; compressed forms are at most half as large, to and from all."""
    if settings["compression"] != "none":
        return 2.0 + 0.5 * (size - 1)
    return all_reduce_messages(1.0, size, settings["schedule"])


def local_sgd_copies(rank: int, size: int, settings: Settings) -> float:
    return 3.0 + max(1.0, _of_a_sum(size, settings))  # the old mean, the change, the sum; then the new mean


def diloco_copies(rank: int, size: int, settings: Settings) -> float:
    # theta, m, the outer gradient, its sum; then its mean, and a new theta and m.
    return 4.0 + max(3.0, _of_a_sum(size, settings))


def streaming_diloco_apart(settings: Settings) -> int:
    # One step for each synchronisation that begins before another one ends.
    return -(-int(settings["overlap"]) * int(settings["fragments"]) // int(settings["interval"]))


def streaming_diloco_copies(rank: int, size: int, settings: Settings) -> float:
    # theta, m, the flat weights; at the end every fragment is in flight, and one takes its outer step.
    return 5.0 + _of_a_sum(size, settings) + 2.0 / float(settings["fragments"])


def fedbuff_copies(rank: int, size: int, settings: Settings) -> float:
    # Workers: the starting weights, the change, the message. Server: the weights twice, buffer, own change, a sum.
    training = min(settings.get("concurrency") or size, size - 1)
    return 3.0 if rank != SERVER else 5.0 + 2.0 * training


def fedbuff_working(size: int, steps: int, settings: Settings) -> int:
    if settings.get("concurrency") is None:
        return size
    # The server, and a worker for each call: as many as each place has rounds.
    places, rounds = min(int(settings["concurrency"]), size - 1), -(-steps // int(settings["interval"]))
    return min(size, 1 + places * rounds)


def async_diloco_copies(rank: int, size: int, settings: Settings) -> float:
    # As in fedbuff; the server also has momentum, and replaces all three at once.
    return 3.0 if rank != SERVER else 8.0 + 2.0 * (size - 1)


def easgd_copies(rank: int, size: int, settings: Settings) -> float:
    # The flat weights, the force on them, their sum, and the message or the centre.
    asynchronous = settings["form"] == "asynchronous"
    return 5.0 + (2.0 * (size - 1) if asynchronous and rank == SERVER else 0.0)


def sparta_copies(rank: int, size: int, settings: Settings) -> float:
    # The flat weights before and after; for the coordinates drawn: 8-byte indices, values, sum and message.
    return 2.0 + 5.0 * float(settings["fraction"])


def demo_copies(rank: int, size: int, settings: Settings) -> float:
    # Momentum before and after, flat gradients, Q; every rank's coefficients with their places.
    share = min(float(settings["top_k"]) / float(settings["chunk"]), 1.0)
    return 4.0 + 1.5 * share * (2.0 * (size - 1) + 1.0)
