"""Checks of conservation: every message and contribution is counted exactly once, and in time."""

from __future__ import annotations

from itertools import product

import torch

from simcluster.algorithms.data_parallel.accumulator import Accumulator
from simcluster.lab.verify.claim import Contributions
from simcluster.lab.verify.running import RunResult
from simcluster.lab.verify.subject import Subject
from simcluster.lab.verify.verdict import CheckFailed, NotClaimed, expect, listed, shown


def messages(subject: Subject) -> str:
    """Check that all messages arrive, and that unread ones do not pile up."""
    size = max(subject.sizes)
    short = subject.run(size, uneven=True).ended(f"N = {size}")
    steps = short.plan.steps
    long = subject.run(size, uneven=True, steps=2 * steps).ended(f"N = {size}, {2 * steps} steps")
    before, after = (done.sent - done.taken for done in (short, long))
    told = f"N = {size}: {long.sent} sent = {long.taken} received + {after} left unread by those that had ended"
    expect(after >= 0, f"{told}: more than was sent")
    expect(not (subject.claim.order_free and after), f"{told}, although no rank runs ahead of another")
    more = f"{before} after {steps} steps, {after} after {2 * steps}"
    expect(after - before <= size * (size - 1), f"N = {size}: what is never received grows with the run: {more}")
    return told


def contributions(subject: Subject) -> str:
    """Check that pushed = applied + rejected + in flight, with equal nodes and with a slower one."""
    if subject.claim.contributions is None:
        raise NotClaimed("no account of contributions is claimed")
    for size, uneven in product(subject.several or subject.sizes, (False, True)):
        done = subject.run(size, uneven=uneven)
        if wrong := done.failure or balance(subject, done):
            raise CheckFailed(f"N = {size}{', one node slower' if uneven else ''}: {wrong}")
    account = subject.claim.contributions(done.metrics())
    return f"N = {size}, one node slower: {account.pushed} pushed = {_parts(account)}"


def staleness(subject: Subject) -> str:
    """Check that, on equal nodes, no contribution is staler than the claim allows."""
    if subject.claim.staleness_bound is None:
        raise NotClaimed("no bound is claimed")
    most = 0.0
    for settings, size in product(({}, *subject.claim.staleness_for), subject.several):
        where = f"N = {size}, {shown(settings)}"
        done = subject.run(size, settings=settings).ended(where)
        found = [value for metrics in done.metrics() for _, value in metrics.get("staleness", ())]
        bound = subject.claim.staleness_bound(size, done.plan.algorithm_settings)
        told = f"from {min(found):g} to {max(found):g}" if found else "never recorded"
        holds = bool(found) and min(found) == 0 and max(found) <= bound
        expect(holds, f"{where}: it is {told}; on equal nodes it should be from 0 to at most {bound:g}")
        most = max(most, *found)
    return f"N = {listed(subject.several)}, equal nodes: at most {most:g}, within the bound"


def sums(subject: Subject) -> str:
    """Check the accumulator of contributions by step and shard.

    It must add each contribution once, reject late and duplicate ones, and keep none at the end.
    """
    size = 3
    steps = 4
    shards = 2
    accumulator = Accumulator(size)
    said = []
    for step, shard in product(range(1, steps + 1), range(shards)):
        for rank in reversed(range(size)):
            accumulator.add(step, shard, rank, torch.tensor(float(10 * step + rank)))
            said.append(accumulator.add(step, shard, rank, torch.tensor(1e6)))  # duplicate
        total = float(accumulator.take(step, shard))
        expect(total == 30 * step + 3, f"step {step} of shard {shard} sums to {total:g}, not to {30 * step + 3}")
        said.append(accumulator.add(step, shard, 0, torch.tensor(1e6)))  # too late
    pushed, refused = 2 * size * steps * shards + steps * shards, sum(verdict != "taken" for verdict in said)
    counts = f"{accumulator.applied} applied + {accumulator.rejected} rejected + {accumulator.waiting} waiting"
    whole = accumulator.applied + accumulator.rejected == pushed and not accumulator.waiting
    told = f"{pushed} contributions, {len(said)} of them late or double: {counts}"
    return expect(whole and refused == len(said), told)


def balance(subject: Subject, done: RunResult) -> str:
    """Describe which counts of the run *done* do not add up; "" if all do."""
    if done.taken > done.sent:
        return f"{done.taken} messages received and {done.sent} sent"
    if subject.claim.contributions is None:
        return ""
    account = subject.claim.contributions(done.metrics())
    if min(account.pushed, account.applied, account.rejected, account.in_flight) < 0:
        return f"{account.pushed} pushed = {_parts(account)}: no count is negative"
    if account.pushed == 0:
        return "nothing was pushed"
    if account.pushed != account.applied + account.rejected + account.in_flight:
        return f"{account.pushed} pushed, but {_parts(account)}"
    return ""


def _parts(account: Contributions) -> str:
    return f"{account.applied} applied + {account.rejected} rejected + {account.in_flight} in flight"
