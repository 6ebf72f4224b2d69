"""Pairs of settings, or of algorithms, that must give the same weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from simcluster.verify.claim import Identity
from simcluster.verify.running import as_json, far_apart
from simcluster.verify.subject import Subject
from simcluster.verify.tell import failed, held, listed, not_claimed, shown
from simcluster.verify.verdict import Check
from simcluster.workloads import train_alone

NAME = "identity"
ONE_PROCESS = "one process"


def identities(subject: Subject) -> Iterator[Check]:
    """Yield one line per claimed identity."""
    claimed = subject.claim.identities if subject.claim is not None else ()
    if not claimed:
        yield not_claimed(NAME, "no identity is claimed")
    for identity in claimed:
        yield _check(subject, identity)


def _check(subject: Subject, identity: Identity) -> Check:
    told = f"with {shown(identity.settings)} = {identity.other}"
    if identity.other_settings:
        told += f" with {shown(identity.other_settings)}"
    told += f" ({identity.why})" if identity.why else ""
    sizes = [size for size in subject.several if identity.sizes is None or size in identity.sizes]
    if subject.quick:
        sizes = [min(sizes, key=lambda size: abs(size - 3))] if sizes else []
    if not sizes:
        return not_claimed(NAME, f"{told}: for none of the requested world sizes")
    worst = 0.0
    for size in sizes:
        done = subject.run(size, settings=identity.settings)
        if done.error is not None:
            return failed(NAME, f"{told}: N = {size}: {done.failure}")
        other = _other(subject, identity, size)
        if isinstance(other, str):
            return failed(NAME, f"{told}: N = {size}: {other}")
        mine = done.weights[0] or []
        apart = far_apart(mine, other)
        same_bits = len(mine) == len(other) and all(torch.equal(a, b) for a, b in zip(mine, other, strict=True))
        if apart > subject.rounding or (identity.exact and not same_bits):
            return failed(NAME, f"{told}: with N = {size}, rank 0 ends {apart:.2g} apart")
        worst = max(worst, apart)
    by = "to the bit" if identity.exact else f"at most {worst:.1g} apart"
    return held(NAME, f"{told}: N = {listed(sizes)}, {by}")


def _other(subject: Subject, identity: Identity, size: int) -> list[Tensor] | str:
    """Return rank 0's weights on the other side, or why there are none."""
    request = subject.request(size)
    if identity.other == ONE_PROCESS:
        return train_alone(subject.model, size, request.seed, request.steps)
    same = identity.other == subject.algorithm.get("name")
    given = {**subject.settings, **identity.other_settings} if same else identity.other_settings
    done = subject.runner.run_other({"name": identity.other}, replace(request, settings=as_json(given)))
    return done.failure if done.error is not None else (done.weights[0] or [])
