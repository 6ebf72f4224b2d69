"""Bounds on staleness, and sums that wait for all ranks: nothing twice, nothing late, nothing left over."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from simcluster.algorithms.data_parallel.accumulator import Accumulator
from simcluster.verify.subject import Subject
from simcluster.verify.tell import failed, held, listed, not_claimed, shown
from simcluster.verify.verdict import Check

STALENESS, SUMS = "staleness", "sums by step and shard"


def staleness(subject: Subject) -> Iterator[Check]:
    """Check that on equal nodes nothing is staler than claimed."""
    if subject.claim is None or subject.claim.staleness_bound is None:
        yield not_claimed(STALENESS, "no bound is claimed")
        return
    most = 0.0
    for settings in ({}, *subject.claim.staleness_for):
        for size in subject.several:
            done = subject.run(size, settings=dict(settings))
            where = f"N = {size}, {shown(settings)}"
            if done.error is not None:
                yield failed(STALENESS, f"{where}: {done.failure}")
                return
            found = [value for rank in range(size) for _, value in done.values(rank).get("staleness", ())]
            bound = subject.claim.staleness_bound(size, done.plan.algorithm_settings)
            if not found or min(found) != 0 or max(found) > bound:
                told = f"from {min(found):g} to {max(found):g}" if found else "never recorded"
                yield failed(
                    STALENESS, f"{where}: it is {told}; on equal nodes it should be from 0 to at most {bound:g}"
                )
                return
            most = max(most, max(found))
    yield held(STALENESS, f"N = {listed(subject.several)}, equal nodes: at most {most:g}, within the bound")


def sums(subject: Subject) -> Iterator[Check]:
    """Check the accumulator of steps and shards: each contribution once, late and double ones refused, none kept."""
    size, steps, shards = 3, 4, 2
    accumulator, said = Accumulator(size), []
    for step in range(1, steps + 1):
        for shard in range(shards):
            for rank in reversed(range(size)):
                accumulator.add(step, shard, rank, torch.tensor(float(10 * step + rank)))
                said.append(accumulator.add(step, shard, rank, torch.tensor(1e6)))  # once more
            total = float(accumulator.take(step, shard))
            if total != 30 * step + 3:
                yield failed(SUMS, f"step {step} of shard {shard} sums to {total:g}, not to {30 * step + 3}")
                return
            said.append(accumulator.add(step, shard, 0, torch.tensor(1e6)))  # too late
    pushed, refused = 2 * size * steps * shards + steps * shards, sum(verdict != "taken" for verdict in said)
    counts = f"{accumulator.applied} applied + {accumulator.rejected} rejected + {accumulator.waiting} waiting"
    told = f"{pushed} contributions, {len(said)} of them late or double: {counts}"
    whole = accumulator.applied + accumulator.rejected == pushed and not accumulator.waiting
    yield (held if whole and refused == len(said) else failed)(SUMS, told)
