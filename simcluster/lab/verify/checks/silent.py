"""Checks for mistakes in runs that look fine: the warnings of simcluster.runs.doubts, as laws."""

from __future__ import annotations

from collections.abc import Collection

from simcluster.lab.verify.running import RunResult
from simcluster.lab.verify.subject import Subject
from simcluster.lab.verify.verdict import NotClaimed, expect, listed
from simcluster.runs.doubts import IN_PLACE, NO_STEP, NO_TIME, NOT_AWAITED, NOT_FINITE, OUTSIDE, UNTRAINED


def work(subject: Subject) -> str:
    """Check that all work is done in node.compute, so that it takes time on the node's device."""
    _none_of(subject, (OUTSIDE, NO_TIME, IN_PLACE))
    size = max(subject.sizes)
    device_s = sum(node.compute_s for node in subject.run(size).nodes)
    return f"N = {listed(subject.sizes)}: all work is in node.compute, {device_s:.4g} s of it with N = {size}"


def finite(subject: Subject) -> str:
    """Check that no loss and no final weight is infinite or not a number."""
    _none_of(subject, (NOT_FINITE,))
    for size in subject.sizes:
        done = subject.run(size).ended(f"N = {size}")
        wrong = [
            rank for rank, found in enumerate(done.weights) if not all(bool(w.isfinite().all()) for w in found or ())
        ]
        expect(not wrong, f"N = {size}: rank {listed(wrong)} ends with weights that are infinite or not a number")
    return f"N = {listed(subject.sizes)}: every loss and every final weight is finite"


def awaited(subject: Subject) -> str:
    """Check that every coroutine is awaited."""
    _none_of(subject, (NOT_AWAITED,))
    return f"N = {listed(subject.sizes)}: every coroutine is awaited"


def recorded(subject: Subject) -> str:
    """Check that steps are recorded, and that they change the weights."""
    _none_of(subject, (NO_STEP, UNTRAINED))
    size = max(subject.sizes)
    steps = max(node.steps for node in subject.run(size).nodes)
    return f"N = {listed(subject.sizes)}: steps are recorded, up to {steps} with N = {size}"


def apart(subject: Subject) -> str:
    """Check that the result is the same if each rank has its own copy of the user's modules."""
    if "path" not in subject.algorithm:
        raise NotClaimed("it is one of the library's algorithms, which have no state at module level")
    size = max(subject.sizes)
    if size == 1:
        raise NotClaimed("one rank shares with no other")
    together, each = subject.run(size, copies=1), subject.run(size, copies=size)
    if together.error is not None:
        raise NotClaimed(f"N = {size}: the run fails: {together.failure}")
    told = f"N = {size}: with a copy of the code for each rank, as on real nodes, the run ends with the same bits"
    if not _alike(together, each) and not _alike(together, subject.run(size, copies=1, again=1)):
        raise NotClaimed(f"N = {size}: it does not repeat itself (see determinism)")
    places = listed(subject.runner.changed[subject.request(size, copies=1)]) or "state at module level"
    failure = f"; then {each.failure}" if each.error is not None else ""
    wrong = f"N = {size}: all ranks share {places} in the simulator, and on real nodes each has its own{failure}"
    expect(_alike(together, each), wrong)
    return told


def _alike(one: RunResult, other: RunResult) -> bool:
    return (one.trace_sha256, one.failure) == (other.trace_sha256, other.failure) and one.same_weights(other)


def _none_of(subject: Subject, kinds: Collection[str]) -> None:
    """Raise CheckFailed if a run has a warning of *kinds*, or fails."""
    for size in subject.sizes:
        done = subject.run(size)
        found = [row["text"] for row in done.doubts if row["kind"] in kinds]
        expect(not found, f"N = {size}: {found[0] if found else ''}")
        done.ended(f"N = {size}")
