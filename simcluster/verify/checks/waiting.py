"""Bounds on staleness, and sums that wait for all ranks: nothing twice, nothing late, nothing left over."""

from __future__ import annotations

from itertools import product

import torch

from simcluster.algorithms.data_parallel.accumulator import Accumulator
from simcluster.verify.subject import Subject
from simcluster.verify.verdict import NotClaimed, expect, listed, shown


def staleness(subject: Subject) -> str:
    """Check that on equal nodes nothing is staler than claimed."""
    if subject.claim.staleness_bound is None:
        raise NotClaimed("no bound is claimed")
    most = 0.0
    for settings, size in product(({}, *subject.claim.staleness_for), subject.several):
        where = f"N = {size}, {shown(settings)}"
        done = subject.run(size, settings=settings).ended(where)
        found = [value for rank in range(size) for _, value in done.values(rank).get("staleness", ())]
        bound = subject.claim.staleness_bound(size, done.plan.algorithm_settings)
        told = f"from {min(found):g} to {max(found):g}" if found else "never recorded"
        holds = bool(found) and min(found) == 0 and max(found) <= bound
        expect(holds, f"{where}: it is {told}; on equal nodes it should be from 0 to at most {bound:g}")
        most = max(most, *found)
    return f"N = {listed(subject.several)}, equal nodes: at most {most:g}, within the bound"


def sums(subject: Subject) -> str:
    """Check the accumulator of steps and shards: each contribution once, late and double ones refused, none kept."""
    size, steps, shards = 3, 4, 2
    accumulator, said = Accumulator(size), []
    for step, shard in product(range(1, steps + 1), range(shards)):
        for rank in reversed(range(size)):
            accumulator.add(step, shard, rank, torch.tensor(float(10 * step + rank)))
            said.append(accumulator.add(step, shard, rank, torch.tensor(1e6)))  # once more
        total = float(accumulator.take(step, shard))
        expect(total == 30 * step + 3, f"step {step} of shard {shard} sums to {total:g}, not to {30 * step + 3}")
        said.append(accumulator.add(step, shard, 0, torch.tensor(1e6)))  # too late
    pushed, refused = 2 * size * steps * shards + steps * shards, sum(verdict != "taken" for verdict in said)
    counts = f"{accumulator.applied} applied + {accumulator.rejected} rejected + {accumulator.waiting} waiting"
    whole = accumulator.applied + accumulator.rejected == pushed and not accumulator.waiting
    told = f"{pushed} contributions, {len(said)} of them late or double: {counts}"
    return expect(whole and refused == len(said), told)
