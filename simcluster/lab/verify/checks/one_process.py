"""Checks of equal results: with a reference in one process, and between settings or algorithms."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

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
        where = f"{told}: N = {size}"
        mine = subject.run(size, settings=identity.settings).ended(where).weights[0] or []
        other = _other(subject, identity, size, where)
        apart = far_apart(mine, other)
        same_bits = len(mine) == len(other) and all(torch.equal(a, b) for a, b in zip(mine, other, strict=True))
        if apart > subject.rounding or (identity.exact and not same_bits):
            raise CheckFailed(f"{told}: with N = {size}, rank 0 ends {apart:.2g} apart")
        worst = max(worst, apart)
    return f"{told}: N = {listed(sizes)}, {'to the bit' if identity.exact else f'at most {worst:.1g} apart'}"


def _other(subject: Subject, identity: Identity, size: int, where: str) -> list[Tensor]:
    """Return rank 0's weights on the other side of *identity*.

    Raise CheckFailed, with *where*, if the other algorithm's run fails.
    """
    request = subject.request(size)
    if identity.other == "one process":
        return train_alone(subject.model, size, request.seed, request.steps)
    same = identity.other == subject.algorithm.get("name")
    given = {**subject.settings, **identity.other_settings} if same else identity.other_settings
    other = replace(request, algorithm=as_json({"name": identity.other}), settings=as_json(given))
    return subject.runner.run(other).ended(where).weights[0] or []


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
