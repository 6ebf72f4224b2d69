"""One algorithm on two backends: equal bits if the result does not depend on arrival, else equal laws."""

from __future__ import annotations

from simcluster.verify.checks.conservation import balance
from simcluster.verify.checks.learning import loss_before_and_after
from simcluster.verify.running import Done
from simcluster.verify.subject import Subject
from simcluster.verify.verdict import NotClaimed, expect, listed


def backends(subject: Subject) -> str:
    if len(subject.backends) < 2:
        raise NotClaimed(f"only asked for on {subject.backends[0]}")
    order_free = subject.claim.order_free
    sizes = [max(size for size in subject.sizes if size <= 3)] if subject.quick else list(subject.sizes)
    for size in sizes:
        simulated, real = subject.run(size), subject.run(size, backend="sockets")
        failure = f"in the simulator {simulated.failure}" if simulated.error is not None else ""
        if real.error is not None and not failure:
            failure = f"on sockets {real.failure}"
        wrong = failure or (_difference if order_free or size == 1 else _broken_law)(subject, simulated, real)
        if wrong and not (subject.is_claimed or failure or _broken_law(subject, simulated, real)):
            raise NotClaimed(f"N = {size}: {wrong}; the order of messages is not claimed to be irrelevant")
        expect(not wrong, f"N = {size}: {wrong}")
    if order_free or not subject.is_claimed:
        return f"N = {listed(sizes)}: the same weights to the bit, messages and bytes on every rank"
    return f"N = {listed(sizes)}: on sockets every message is accounted for, and the loss falls"


def _difference(_: Subject, simulated: Done, real: Done) -> str:
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


def _broken_law(subject: Subject, _: Done, real: Done) -> str:
    """Describe a law that an asynchronous run on sockets breaks."""
    if wrong := balance(subject, real):
        return wrong
    before, after = loss_before_and_after(real)
    return "" if after < before else f"on sockets the loss goes from {before:.4g} to {after:.4g}"
