"""Conservation: every message between ranks and every contribution of a worker is accounted for."""

from __future__ import annotations

from itertools import product

from simcluster.verify.claim import Contributions
from simcluster.verify.running import Done
from simcluster.verify.subject import Subject
from simcluster.verify.verdict import Failed, NotClaimed, expect


def messages(subject: Subject) -> str:
    """Check that all messages arrive, and that none pile up unread."""
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
    """Check pushed = applied + rejected + in flight, in an even and an uneven run."""
    if subject.claim.contributions is None:
        raise NotClaimed("no account of contributions is claimed")
    for size, uneven in product(subject.several or subject.sizes, (False, True)):
        done = subject.run(size, uneven=uneven)
        if wrong := done.failure or balance(subject, done):
            raise Failed(f"N = {size}{', one node slower' if uneven else ''}: {wrong}")
    account = subject.claim.contributions(_metrics(done))
    return f"N = {size}, one node slower: {account.pushed} pushed = {_parts(account)}"


def balance(subject: Subject, done: Done) -> str:
    """Describe what does not add up in a run, if anything."""
    if done.taken > done.sent:
        return f"{done.taken} messages received and {done.sent} sent"
    if subject.claim.contributions is None:
        return ""
    account = subject.claim.contributions(_metrics(done))
    if min(account.pushed, account.applied, account.rejected, account.in_flight) < 0:
        return f"{account.pushed} pushed = {_parts(account)}: no count is negative"
    if account.pushed == 0:
        return "nothing was pushed"
    if account.pushed != account.applied + account.rejected + account.in_flight:
        return f"{account.pushed} pushed, but {_parts(account)}"
    return ""


def _metrics(done: Done) -> list[dict[str, list[tuple[int, float]]]]:
    return [done.values(rank) for rank in range(len(done.nodes))]


def _parts(account: Contributions) -> str:
    return f"{account.applied} applied + {account.rejected} rejected + {account.in_flight} in flight"
