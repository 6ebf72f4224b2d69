"""Checks that averaging uses a stochastic matrix, and keeps equal weights as they are."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from simcluster.verify.running import far_apart
from simcluster.verify.subject import Subject
from simcluster.verify.tell import failed, held, listed, not_claimed
from simcluster.verify.verdict import Check

MATRIX, FIXED_POINT = "mixing matrix", "fixed point"
ROUNDS = 8
EXACT = 1e-12

STILL = '{"name": "quadratic", "features": 84, "dtype": "float64", "batch_size": 8, "learning_rate": 1e-300}'
"""Nothing is learnt at this rate: weights move by averaging only."""


def matrix(subject: Subject) -> Iterator[Check]:
    """Check that the matrix is doubly stochastic (or by columns, if claimed) to 1e-12, in each of the first rounds."""
    if subject.claim is None or subject.claim.mixing is None:
        yield not_claimed(MATRIX, "no mixing matrix is claimed")
        return
    worst, axes = 0.0, {"columns": 0} if subject.claim.column_stochastic else {"rows": 1, "columns": 0}
    for size in subject.sizes:
        settings = dict(subject.run(size).plan.algorithm_settings)
        for number in range(ROUNDS):
            mixing = np.asarray(subject.claim.mixing(size, number, settings))
            where = f"N = {size}, round {number}"
            if mixing.shape != (size, size):
                yield failed(MATRIX, f"{where}: its shape is {mixing.shape}")
                return
            if mixing.min() < 0:
                yield failed(MATRIX, f"{where}: it has the entry {mixing.min():.4g}, below 0")
                return
            for name, axis in axes.items():
                off = float(np.abs(mixing.sum(axis=axis) - 1).max())
                if not off <= EXACT:
                    sums = listed(f"{total:.6g}" for total in mixing.sum(axis=axis))
                    yield failed(MATRIX, f"{where}: {name} sum to {sums}, not to 1")
                    return
                worst = max(worst, off)
    yield held(
        MATRIX, f"N = {listed(subject.sizes)}, {ROUNDS} rounds: {' and '.join(axes)} sum to 1, at most {worst:.1g} off"
    )


def fixed_point(subject: Subject) -> Iterator[Check]:
    """Check that equal replicas that learn nothing stay as they are."""
    if subject.claim is not None and subject.claim.workload is not None:
        yield not_claimed(FIXED_POINT, f"it is for {subject.claim.workload} only")
        return
    size = max(subject.sizes)
    done = subject.run(size, workload=STILL)
    if done.error is not None:
        yield failed(FIXED_POINT, f"N = {size}: {done.failure}")
        return
    born = done.plan.workload.replica(0, size, done.plan.seed, 1).snapshot()
    moved = [far_apart(weights or [], born) for weights in done.weights]
    told = f"N = {size}, learning rate 1e-300: weights that were equal move by {max(moved):.1g}"
    if max(moved) <= EXACT:
        yield held(FIXED_POINT, told)
    elif subject.claim is None:
        yield not_claimed(FIXED_POINT, told)
    else:
        yield failed(FIXED_POINT, f"{told} on rank {moved.index(max(moved))}")
