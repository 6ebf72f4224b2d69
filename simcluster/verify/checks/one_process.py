"""N ranks compute what one process computes: the claimed reference, or training alone on the joined batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import Tensor

from simcluster.verify.running import Done, as_json, far_apart
from simcluster.verify.subject import Subject, workload_block
from simcluster.verify.tell import failed, held, listed, not_claimed
from simcluster.verify.verdict import Check
from simcluster.workloads import train_alone

ALONE, JOINED, TUNED = "N = 1", "N = one process", "N = one process, with momentum and clipping"

MOMENTUM_AND_CLIPPING = {"learning_rate": 0.05, "momentum": 0.9, "clip_norm": 0.5}
ITS_WORKLOADS = ("mnist_mlp", "gpt")
"""The workloads that have these settings, the default first."""


def alone(subject: Subject) -> Iterator[Check]:
    """Check that one rank trains like one process, or like its reference."""
    if 1 not in subject.sizes:
        yield not_claimed(ALONE, f"it is for {listed(subject.sizes)} ranks")
        return
    done = subject.run(1)
    if done.error is not None:
        yield failed(ALONE, f"one rank fails: {done.failure}")
        return
    apart = _apart(done, [train_alone(subject.model, 1, subject.seed, done.plan.steps)])
    if apart <= subject.rounding:
        yield held(ALONE, f"one rank is ordinary training: {apart:.1g} apart after {done.plan.steps} steps")
        return
    of_its_own = _apart(done, _reference(subject, done)) if _has_reference(subject) else apart
    if of_its_own <= subject.rounding:
        yield held(ALONE, f"one rank does what its reference does ({of_its_own:.1g} apart), not ordinary training")
        return
    yield failed(ALONE, f"one rank ends {apart:.2g} apart from ordinary training")


def joined(subject: Subject) -> Iterator[Check]:
    """Check that every rank in the reference ends like one process, for every N."""
    if subject.claim is not None and not _has_reference(subject):
        yield not_claimed(JOINED, "no reference is claimed")
        return
    worst, compared = 0.0, 0
    runs: list[tuple[int, dict[str, object]]] = [(size, {}) for size in subject.several]
    for settings in subject.claim.reference_for if subject.claim else ():
        runs.append((subject.middle, dict(settings)))
    for size, settings in runs:
        done = subject.run(size, settings=settings)
        where = f"N = {size}{_with(settings)}"
        if done.error is not None:
            yield failed(JOINED, f"{where}: {done.failure}")
            return
        expected = _reference(subject, done)
        compared += len(expected)
        apart = _apart(done, expected)
        if apart > subject.rounding:
            yield _differs(subject, done, where, apart)
            return
        worst = max(worst, apart)
    if not compared:
        yield not_claimed(JOINED, "its reference says nothing of more than one rank")
        return
    what = "one process on the joined batches" if subject.claim is None else "its reference"
    told = f"at most {worst:.1g} from {what} ({subject.rounding:g} is rounding)"
    yield held(JOINED, f"N = {listed(subject.several)}: {told}")


def tuned(subject: Subject) -> Iterator[Check]:
    """Check the same with stateful optimizers and a limit on the gradient."""
    if subject.claim is None or not _has_reference(subject):
        yield not_claimed(TUNED, "no reference is claimed")
        return
    name = subject.claim.workload or ITS_WORKLOADS[0]
    if name not in ITS_WORKLOADS:
        yield not_claimed(TUNED, f"it is for {name} only")
        return
    done = subject.run(workload=as_json({**workload_block(name), **MOMENTUM_AND_CLIPPING}))
    if done.error is not None:
        yield failed(TUNED, done.failure)
        return
    expected, size = _reference(subject, done), len(done.nodes)
    if not expected:
        yield not_claimed(TUNED, f"its reference says nothing of {size} ranks")
        return
    apart = _apart(done, expected)
    told = f"N = {size}, {name} with momentum 0.9 and clip_norm 0.5: {apart:.1g} apart"
    yield (held if apart <= 2e-4 else failed)(TUNED, told)


def _has_reference(subject: Subject) -> bool:
    return subject.claim is not None and subject.claim.reference is not None


def _reference(subject: Subject, done: Done) -> Sequence[Sequence[Tensor]]:
    """Return the expected weights of rank 0, 1, ..."""
    plan, size = done.plan, len(done.nodes)
    if subject.claim is None or subject.claim.reference is None:
        return [train_alone(plan.workload, size, plan.seed, plan.steps)] * size
    return subject.claim.reference(plan.workload, size, plan.seed, plan.steps, plan.algorithm_settings)


def _apart(done: Done, expected: Sequence[Sequence[Tensor]]) -> float:
    """Return the largest distance of any rank's weights from the expected ones."""
    return max([far_apart(done.weights[rank] or [], weights) for rank, weights in enumerate(expected)], default=0.0)


def _differs(subject: Subject, done: Done, where: str, apart: float) -> Check:
    expected = _reference(subject, done)
    ranks = [
        rank for rank, weights in enumerate(expected) if far_apart(done.weights[rank] or [], weights) > subject.rounding
    ]
    on = f"on rank {listed(ranks)}"
    if subject.claim is None:
        told = f"{where}: {apart:.2g} apart from one process on the joined batches {on}, and nothing is claimed"
        return not_claimed(JOINED, told)
    return failed(JOINED, f"{where}: {apart:.2g} apart from its reference {on}; rounding is {subject.rounding:g}")


def _with(settings: dict[str, object]) -> str:
    return " with " + ", ".join(f"{name}={value}" for name, value in settings.items()) if settings else ""
