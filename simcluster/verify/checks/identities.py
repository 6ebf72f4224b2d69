"""Pairs of settings, or of algorithms, that must give the same weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from simcluster.verify.claim import Identity
from simcluster.verify.running import as_json, far_apart
from simcluster.verify.subject import Subject
from simcluster.verify.verdict import Check, Failed, NotClaimed, judged, listed, shown
from simcluster.workloads import train_alone


def identities(subject: Subject) -> Iterator[Check]:
    """Yield one line per claimed identity."""
    if not subject.claim.identities:
        yield Check("identity", "not claimed", "no identity is claimed")
    for identity in subject.claim.identities:
        yield judged("identity", partial(_check, subject, identity))


def _check(subject: Subject, identity: Identity) -> str:
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
            raise Failed(f"{told}: with N = {size}, rank 0 ends {apart:.2g} apart")
        worst = max(worst, apart)
    return f"{told}: N = {listed(sizes)}, {'to the bit' if identity.exact else f'at most {worst:.1g} apart'}"


def _other(subject: Subject, identity: Identity, size: int, where: str) -> list[Tensor]:
    """Return rank 0's weights on the other side. Raises Failed, with *where*, if there are none."""
    request = subject.request(size)
    if identity.other == "one process":
        return train_alone(subject.model, size, request.seed, request.steps)
    same = identity.other == subject.algorithm.get("name")
    given = {**subject.settings, **identity.other_settings} if same else identity.other_settings
    other = replace(request, algorithm=as_json({"name": identity.other}), settings=as_json(given))
    return subject.runner.run(other).ended(where).weights[0] or []
