"""One algorithm on two backends: equal bits if the result does not depend on arrival, else equal laws."""

from __future__ import annotations

from collections.abc import Iterator

from simcluster.verify.checks.conservation import balance
from simcluster.verify.checks.learning import loss_before_and_after
from simcluster.verify.running import Done
from simcluster.verify.subject import Subject
from simcluster.verify.tell import failed, held, listed, not_claimed
from simcluster.verify.verdict import Check

NAME = "simulator = sockets"


def backends(subject: Subject) -> Iterator[Check]:
    if len(subject.backends) < 2:
        yield not_claimed(NAME, f"only asked for on {subject.backends[0]}")
        return
    sizes = [max(size for size in subject.sizes if size <= 3)] if subject.quick else list(subject.sizes)
    for size in sizes:
        simulated, real = subject.run(size), subject.run(size, backend="sockets")
        wrong = _failure(simulated, real) or (
            _difference(simulated, real) if subject.order_free or size == 1 else _broken_law(subject, real)
        )
        if wrong:
            if subject.claim is None and not _failure(simulated, real) and not _broken_law(subject, real):
                yield not_claimed(NAME, f"N = {size}: {wrong}; the order of messages is not claimed to be irrelevant")
                return
            yield failed(NAME, f"N = {size}: {wrong}")
            return
    if subject.order_free or subject.claim is None:
        yield held(NAME, f"N = {listed(sizes)}: the same weights to the bit, messages and bytes on every rank")
    else:
        yield held(NAME, f"N = {listed(sizes)}: on sockets every message is accounted for, and the loss falls")


def _failure(simulated: Done, real: Done) -> str:
    if simulated.error is not None:
        return f"in the simulator {simulated.failure}"
    return f"on sockets {real.failure}" if real.error is not None else ""


def _difference(simulated: Done, real: Done) -> str:
    """Describe a difference between runs that must be equal."""
    for mine, other in zip(simulated.nodes, real.nodes, strict=True):
        if mine.weights_sha256 != other.weights_sha256:
            return f"rank {mine.rank} has other weights on sockets than in the simulator"
        if mine.sent_to != other.sent_to:
            counts = f"{other.sent_to} on sockets and {mine.sent_to} in the simulator"
            return f"rank {mine.rank} sends {counts} (rank: [messages, bytes])"
    if simulated.tensor_bytes != real.tensor_bytes:
        return f"{simulated.tensor_bytes} bytes of tensors in the simulator, {real.tensor_bytes} on sockets"
    return ""


def _broken_law(subject: Subject, real: Done) -> str:
    """Describe a law that an asynchronous run on sockets breaks."""
    wrong = balance(subject, real)
    if wrong:
        return wrong
    before, after = loss_before_and_after(subject, real)
    return "" if after < before else f"on sockets the loss goes from {before:.4g} to {after:.4g}"
