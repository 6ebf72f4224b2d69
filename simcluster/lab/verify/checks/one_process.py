"""Checks of equal results: with a reference in one process, and between settings or algorithms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from simcluster.algorithms import ALGORITHMS
from simcluster.algorithms.facts import facts_of
from simcluster.lab.verify.claim import Identity, Settings, Weights
from simcluster.lab.verify.running import RunResult, as_json, far_apart
from simcluster.lab.verify.subject import Subject, workload_block
from simcluster.lab.verify.verdict import Check, CheckFailed, NotClaimed, expect, judged, listed, shown
from simcluster.workloads import train_alone

MOMENTUM_AND_CLIPPING = {"learning_rate": 0.05, "momentum": 0.9, "clip_norm": 0.5}
ITS_WORKLOADS = ("mnist_mlp", "gpt", "mnist_moe")
"""The workloads with the settings MOMENTUM_AND_CLIPPING; the first one is the default."""


def alone(subject: Subject) -> str:
    """Check that one rank trains like one process, or as its reference says."""
    if 1 not in subject.sizes:
        raise NotClaimed(f"it is for {listed(subject.sizes)} ranks")
    done = subject.run(1).ended("one rank fails")
    (apart,) = _distances(done, [train_alone(subject.model, 1, subject.seed, done.plan.steps)])
    if apart <= subject.rounding:
        return f"one rank is ordinary training: {apart:.1g} apart after {done.plan.steps} steps"
    of_its_own = max(_distances(done, _reference(subject, done)), default=0.0)
    if subject.claim.reference is not None and of_its_own <= subject.rounding:
        return f"one rank does what its reference does ({of_its_own:.1g} apart), not ordinary training"
    raise CheckFailed(f"one rank ends {apart:.2g} apart from ordinary training")


def joined(subject: Subject) -> str:
    """Check that each rank ends with the weights of the reference, for every world size."""
    if subject.is_claimed and subject.claim.reference is None:
        raise NotClaimed("no reference is claimed")
    runs: list[tuple[int, Settings]] = [(size, {}) for size in subject.several]
    runs += [(subject.middle, settings) for settings in subject.claim.reference_for]
    distances: list[float] = []
    for size, settings in runs:
        where = f"N = {size}" + (f" with {shown(settings)}" if settings else "")
        done = subject.run(size, settings=settings).ended(where)
        found = _distances(done, _reference(subject, done))
        far = [rank for rank, distance in enumerate(found) if distance > subject.rounding]
        if far:
            apart = f"{max(found):.2g} apart"
            on = f"on rank {listed(far)}"
            if subject.is_claimed:
                raise CheckFailed(f"{where}: {apart} from its reference {on}; rounding is {subject.rounding:g}")
            raise NotClaimed(f"{where}: {apart} from one process on the joined batches {on}, and nothing is claimed")
        distances += found
    if not distances:
        raise NotClaimed("its reference says nothing of more than one rank")
    what = "its reference" if subject.is_claimed else "one process on the joined batches"
    told = f"at most {max(distances):.1g} from {what} ({subject.rounding:g} is rounding)"
    return f"N = {listed(subject.several)}: {told}"


def tuned(subject: Subject) -> str:
    """Check the final weights against the reference, with momentum and clipped gradients."""
    if subject.claim.reference is None:
        raise NotClaimed("no reference is claimed")
    name = subject.claim.workload or ITS_WORKLOADS[0]
    if name not in ITS_WORKLOADS:
        raise NotClaimed(f"it is for {name} only")
    done = subject.run(workload=as_json({**workload_block(name), **MOMENTUM_AND_CLIPPING}))
    expect(done.error is None, done.failure)
    distances = _distances(done, _reference(subject, done))
    size = len(done.nodes)
    if not distances:
        raise NotClaimed(f"its reference says nothing of {size} ranks")
    told = f"N = {size}, {name} with momentum 0.9 and clip_norm 0.5: {max(distances):.1g} apart"
    return expect(max(distances) <= 2e-4, told)


def identities(subject: Subject) -> Iterator[Check]:
    """Yield one line of the table for each claimed identity."""
    if not subject.claim.identities:
        yield Check("identity", "not claimed", "no identity is claimed")
    for identity in subject.claim.identities:
        yield judged("identity", partial(_equal, subject, identity))


def _equal(subject: Subject, identity: Identity) -> str:
    """Check one identity at all world sizes for which it is claimed."""
    told = f"with {shown(identity.settings)} = {identity.other}"
    if identity.other_settings:
        told += f" with {shown(identity.other_settings)}"
    told += f" ({identity.why})" if identity.why else ""
    sizes = [size for size in subject.several if identity.sizes is None or size in identity.sizes]
    if not sizes:
        raise NotClaimed(f"{told}: for none of the requested world sizes")
    if subject.quick:
        sizes = [min(sizes, key=lambda size: abs(size - 3))]
    worst = 0.0
    for size in sizes:
        mine, other = _sides(subject, identity, size, f"{told}: N = {size}")
        apart = far_apart(mine, other)
        same_bits = len(mine) == len(other) and all(torch.equal(a, b) for a, b in zip(mine, other, strict=True))
        if apart > subject.rounding or (identity.exact and not same_bits):
            raise CheckFailed(f"{told}: with N = {size}, rank 0 ends {apart:.2g} apart")
        worst = max(worst, apart)
    return f"{told}: N = {listed(sizes)}, {'to the bit' if identity.exact else f'at most {worst:.1g} apart'}"


def unequal(subject: Subject) -> str:
    """Check batches by node: equal ones change no bit, and all identities hold for unequal ones."""
    plan = subject.runner.plan(subject.request())
    if why := facts_of(plan.algorithm).evenly(plan.algorithm_settings):
        raise NotClaimed(why)
    size, unit = subject.middle, subject.workload.get("batch_size")
    if size < 2 or not isinstance(unit, int) or unit < 2:
        raise NotClaimed("it is for several ranks, and a workload with the setting batch_size")
    equal, plain = subject.run(workload=_by_node(subject, [unit] * size)), subject.run()
    expect(equal.same_weights(plain) and equal.error is None, f"N = {size}: {unit} samples by node are not {unit}")
    half = unit // 2
    sizes = [unit + half * (size - 1), *[unit - half] * (size - 1)]
    workload, where = _by_node(subject, sizes), f"N = {size} with batches of {listed(sizes)}"
    done = subject.run(workload=workload).ended(where)
    expect(not done.same_weights(plain), f"{where}: the weights are those of equal batches")
    told = f"{where}: {unit} by node is {unit} to the bit"
    if len(subject.backends) > 1:
        real, is_free = subject.run(workload=workload, backend="sockets"), subject.claim.order_free
        same = real.ended(f"{where} on sockets").same_weights(done)
        expect(same or not is_free, f"{where}: sockets give other bits than the simulator")
        told += "; sockets give the simulator's bits" if is_free else "; it ends on sockets"
    claimed = [found for found in subject.claim.identities if _weighs(subject, found, size)]
    claimed = claimed[:1] if subject.quick else claimed
    for identity in claimed:
        apart = far_apart(*_sides(subject, identity, size, where, workload))
        other = f"with {shown(identity.settings)} it is not {identity.other}"
        expect(apart <= subject.rounding, f"{where}: {other}: {apart:.2g} apart")
    others = listed(list(dict.fromkeys(identity.other for identity in claimed)))
    return f"{told}; as with equal ones, equal to {others}" if others else told


def _weighs(subject: Subject, identity: Identity, size: int) -> bool:
    """Return whether *identity* is claimed for *size* ranks, and for unequal batches on both sides."""
    mine, other = subject.complete_settings(**identity.settings), ALGORITHMS.get(identity.other)
    uneven = facts_of(subject.runner.plan(subject.request()).algorithm).evenly(mine)
    uneven = uneven or (facts_of(other).evenly(identity.other_settings) if other is not None else "")
    return not uneven and (identity.sizes is None or size in identity.sizes)


def _by_node(subject: Subject, sizes: Sequence[int]) -> str:
    return as_json({**subject.workload, "batch_size": {f"n{rank}": size for rank, size in enumerate(sizes)}})


def _sides(
    subject: Subject, identity: Identity, size: int, where: str, workload: str = ""
) -> tuple[list[Tensor], list[Tensor]]:
    """Return rank 0's weights on both sides of *identity*, by default for the subject's workload.

    Raise CheckFailed, with *where*, if a run fails.
    """
    mine = subject.run(size, settings=identity.settings, workload=workload).ended(where)
    request = subject.request(size, workload=workload)
    if identity.other == "one process":
        other = train_alone(mine.plan.workload, size, request.seed, request.steps)
    else:
        same = identity.other == subject.algorithm.get("name")
        given = {**subject.settings, **identity.other_settings} if same else identity.other_settings
        it = replace(request, algorithm=as_json({"name": identity.other}), settings=as_json(given))
        other = subject.runner.run(it).ended(where).weights[0] or []
    return mine.weights[0] or [], other


def _reference(subject: Subject, done: RunResult) -> Weights:
    """Return the expected weights of rank 0, 1, ...

    They are the reference's weights or, without a reference, those of one process.
    """
    plan = done.plan
    size = len(done.nodes)
    if subject.claim.reference is None:
        return [train_alone(plan.workload, size, plan.seed, plan.steps)] * size
    return subject.claim.reference(plan.workload, size, plan.seed, plan.steps, plan.algorithm_settings)


def _distances(done: RunResult, expected: Weights) -> list[float]:
    """Return the distance of each rank's weights from the *expected* weights."""
    return [far_apart(done.weights[rank] or [], weights) for rank, weights in enumerate(expected)]
