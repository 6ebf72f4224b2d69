"""Checks that an algorithm sends exactly the tensor bytes of its formula, over any network."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from simcluster.errors import RunError, UsageError
from simcluster.verify.checks.learning import loss_before_and_after
from simcluster.verify.cluster import Shape, islands
from simcluster.verify.subject import Subject
from simcluster.verify.tell import failed, held, listed, not_claimed
from simcluster.verify.verdict import Check

BYTES, NETWORKS, DISCONNECTED = "bytes = formula", "any network", "a disconnected network"


def formula(subject: Subject) -> Iterator[Check]:
    """Check the tensor bytes that all ranks send against the formula."""
    if subject.claim is None or subject.claim.payload_bytes is None:
        yield not_claimed(BYTES, "no formula is claimed")
        return
    told: list[str] = []
    for backend in subject.backends if not subject.quick else subject.backends[:1]:
        for size in subject.sizes:
            done = subject.run(size, backend=backend)
            if done.error is not None:
                yield failed(BYTES, f"N = {size} on {backend}: {done.failure}")
                return
            parameters = done.plan.workload.replica(0, size, done.plan.seed, 1).parameters
            if sum(parameter.numel() for parameter in parameters) % size:
                continue
            model = sum(parameter.nbytes for parameter in parameters)
            expected = subject.claim.payload_bytes(size, model, done.plan.steps, done.plan.algorithm_settings)
            if done.tensor_bytes != expected:
                yield failed(
                    BYTES,
                    f"N = {size} on {backend}, {done.plan.steps} steps of {model} B: {done.tensor_bytes} B sent, "
                    f"{expected} by the formula",
                )
                return
            told.append(f"{expected} B")
    if not told:
        yield not_claimed(BYTES, "the model's elements cannot be divided by any of these world sizes")
        return
    yield held(BYTES, f"N = {listed(subject.sizes)}: {', '.join(told[: len(subject.sizes)])}")


def networks(subject: Subject) -> Iterator[Check]:
    """Check a line, a ring, a star and a complete network: the same weights, or at least a run that learns."""
    size = next((size for size in (4, 3, 2) if size in subject.sizes), max(subject.sizes))
    shapes: tuple[Shape, ...] = get_args(Shape)
    star = subject.run(size)
    if star.error is not None:
        yield failed(NETWORKS, f"N = {size} on a star: {star.failure}")
        return
    same = True
    for shape in shapes:
        done = subject.run(size, shape=shape)
        if done.error is not None:
            yield failed(NETWORKS, f"N = {size} on a {shape}: {done.failure}")
            return
        same = same and done.same_weights(star)
        if subject.order_free and not same:
            yield failed(NETWORKS, f"N = {size}: on a {shape} the weights differ from those on a star")
            return
        before, after = loss_before_and_after(subject, done)
        if not after < before:
            yield failed(NETWORKS, f"N = {size} on a {shape}: the loss goes from {before:.4g} to {after:.4g}")
            return
    weights = "the same weights to the bit" if same else "the loss falls on each"
    yield held(NETWORKS, f"N = {size} on {listed(shapes)}: {weights}")


def disconnected(subject: Subject) -> Iterator[Check]:
    """Check that an unreachable node is reported before anything runs."""
    size = max(subject.sizes)
    if size < 2:
        yield not_claimed(DISCONNECTED, "one rank alone is always connected")
        return
    last = f"n{size - 1}"
    try:
        done = subject.runner.run_on(islands(size), subject.request(size))
    except UsageError as refused:
        told = str(refused).splitlines()[0]
        yield (held if last in told else failed)(DISCONNECTED, f"refused: {told}")
        return
    error = done.error
    named = isinstance(error, RunError) and last in str(error)
    yield (held if named else failed)(DISCONNECTED, f"nothing leads to {last}, and the run ends with: {done.failure}")
