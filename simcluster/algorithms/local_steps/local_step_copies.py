"""The number of parameter copies that algorithms with local steps hold. See `Facts.copies`."""

from __future__ import annotations

from simcluster.algorithms.facts import Settings, all_reduce_messages
from simcluster.algorithms.parameter_server.server import SERVER


def _of_a_sum(size: int, settings: Settings) -> float:
    """Return the number of copies that the messages of one averaging over ranks hold.

    With compression, every message to or from a peer is at most half a copy.
    """
    if settings["compression"] != "none":
        return 2.0 + 0.5 * (size - 1)
    return all_reduce_messages(1.0, size, settings["schedule"], settings.get("shares", ()))


def local_sgd_copies(rank: int, size: int, settings: Settings) -> float:
    held, sent = (4.0, 2.0) if settings["control_variates"] else (1.0, 1.0)
    # The old mean; c, and c_i before and after. What is sent, its sum, and the messages or the new mean and c.
    return held + sent * (2.0 + max(1.0, _of_a_sum(size, settings)))


def diloco_copies(rank: int, size: int, settings: Settings) -> float:
    # theta, m, the outer gradient and its sum; then, instead of the messages of the sum, its mean,
    # a new theta and a new m.
    return 4.0 + max(3.0, _of_a_sum(size, settings))


def streaming_diloco_apart(settings: Settings) -> int:
    # One step for each synchronisation that begins before an earlier one has ended.
    return -(-int(settings["overlap"]) * int(settings["fragments"]) // int(settings["interval"]))


def streaming_diloco_copies(rank: int, size: int, settings: Settings) -> float:
    # theta, m and the flat weights. At the end every fragment is in flight while one fragment takes
    # its outer step.
    return 5.0 + _of_a_sum(size, settings) + 2.0 / float(settings["fragments"])


def fedbuff_copies(rank: int, size: int, settings: Settings) -> float:
    # A worker holds the weights at its start, the change and the message. The server holds the
    # weights twice, the buffer, its own change and a sum.
    training = min(settings.get("concurrency") or size, size - 1)
    return 3.0 if rank != SERVER else 5.0 + 2.0 * training


def fedbuff_working(size: int, steps: int, settings: Settings) -> int:
    if settings.get("concurrency") is None:
        return size
    # At most the server and one worker per call do anything: each call may go to a different
    # worker.
    places, rounds = min(int(settings["concurrency"]), size - 1), -(-steps // int(settings["interval"]))
    return min(size, 1 + places * rounds)


def async_diloco_copies(rank: int, size: int, settings: Settings) -> float:
    # As in fedbuff, but the server also holds the momentum, and replaces theta, momentum and buffer
    # at the same time.
    return 3.0 if rank != SERVER else 8.0 + 2.0 * (size - 1)


def easgd_copies(rank: int, size: int, settings: Settings) -> float:
    # The flat weights, the force on them, their sum, and the message or the centre.
    asynchronous = settings["form"] == "asynchronous"
    return 5.0 + (2.0 * (size - 1) if asynchronous and rank == SERVER else 0.0)


def sparta_copies(rank: int, size: int, settings: Settings) -> float:
    # The flat weights before and after, and for each drawn coordinate an 8-byte index, a value, a
    # sum and a message.
    return 2.0 + 5.0 * float(settings["fraction"])


def demo_copies(rank: int, size: int, settings: Settings) -> float:
    # The momentum before and after, the flat gradients, Q, and every rank's coefficients with their
    # indices.
    share = min(float(settings["top_k"]) / float(settings["chunk"]), 1.0)
    return 4.0 + 1.5 * share * (2.0 * (size - 1) + 1.0)
