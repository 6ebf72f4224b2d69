"""Checks that averaging uses a stochastic matrix, and leaves equal weights unchanged."""

from __future__ import annotations

from itertools import product

import numpy as np

from simcluster.lab.verify.running import far_apart
from simcluster.lab.verify.subject import Subject
from simcluster.lab.verify.verdict import NotClaimed, expect, listed

ROUNDS = 8
"""Number of rounds whose mixing matrix is checked."""

EXACT = 1e-12

STILL = '{"name": "quadratic", "features": 84, "dtype": "float64", "batch_size": 8, "learning_rate": 1e-300}'
"""A workload with a learning rate of almost 0: only averaging changes weights."""


def matrix(subject: Subject) -> str:
    """Check that the mixing matrix of each of the first rounds is stochastic, as claimed."""
    if subject.claim.mixing is None:
        raise NotClaimed("no mixing matrix is claimed")
    worst = 0.0
    axes = {"columns": 0} if subject.claim.column_stochastic else {"rows": 1, "columns": 0}
    for size, number in product(subject.sizes, range(ROUNDS)):
        mixing = np.asarray(subject.claim.mixing(size, number, subject.run(size).plan.algorithm_settings))
        where = f"N = {size}, round {number}"
        expect(mixing.shape == (size, size), f"{where}: its shape is {mixing.shape}")
        expect(not mixing.min() < 0, f"{where}: it has the entry {mixing.min():.4g}, below 0")
        for name, axis in axes.items():
            totals = mixing.sum(axis=axis)
            off = float(np.abs(totals - 1).max())
            expect(off <= EXACT, f"{where}: {name} sum to {listed(f'{total:.6g}' for total in totals)}, not to 1")
            worst = max(worst, off)
    told = f"{' and '.join(axes)} sum to 1, at most {worst:.1g} off"
    return f"N = {listed(subject.sizes)}, {ROUNDS} rounds: {told}"


def fixed_point(subject: Subject) -> str:
    """Check that weights stay the same if all replicas are equal and learn nothing."""
    if subject.claim.workload is not None:
        raise NotClaimed(f"it is for {subject.claim.workload} only")
    size = max(subject.sizes)
    done = subject.run(size, workload=STILL).ended(f"N = {size}")
    born = done.plan.workload.replica(0, size, done.plan.seed, 1).snapshot()
    moved = [far_apart(weights or [], born) for weights in done.weights]
    told = f"N = {size}, learning rate 1e-300: weights that were equal move by {max(moved):.1g}"
    if max(moved) > EXACT and not subject.is_claimed:
        raise NotClaimed(told)
    expect(max(moved) <= EXACT, f"{told} on rank {moved.index(max(moved))}")
    return told
