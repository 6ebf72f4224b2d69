"""Conservation: every message between ranks and every contribution of a worker is accounted for."""

from __future__ import annotations

from collections.abc import Iterator

from simcluster.verify.running import Done
from simcluster.verify.subject import Subject
from simcluster.verify.tell import failed, held, not_claimed
from simcluster.verify.verdict import Check

MESSAGES, CONTRIBUTIONS = "conservation of messages", "conservation of contributions"


def messages(subject: Subject) -> Iterator[Check]:
    """Check that all messages arrive, and that none pile up unread."""
    size = max(subject.sizes)
    short = subject.run(size, uneven=True)
    if short.error is not None:
        yield failed(MESSAGES, f"N = {size}: {short.failure}")
        return
    long = subject.run(size, uneven=True, steps=2 * short.plan.steps)
    if long.error is not None:
        yield failed(MESSAGES, f"N = {size}, {long.plan.steps} steps: {long.failure}")
        return
    unread = [done.sent - done.taken for done in (short, long)]
    told = f"N = {size}: {long.sent} sent = {long.taken} received + {unread[1]} left unread by those that had ended"
    if unread[1] < 0:
        yield failed(MESSAGES, f"{told}: more than was sent")
    elif subject.order_free and unread[1]:
        yield failed(MESSAGES, f"{told}, although no rank runs ahead of another")
    elif unread[1] - unread[0] > size * (size - 1):
        more = f"{unread[0]} after {short.plan.steps} steps, {unread[1]} after {long.plan.steps}"
        yield failed(MESSAGES, f"N = {size}: what is never received grows with the run: {more}")
    else:
        yield held(MESSAGES, told)


def contributions(subject: Subject) -> Iterator[Check]:
    """Check pushed = applied + rejected + in flight, in an even and an uneven run."""
    if subject.claim is None or subject.claim.contributions is None:
        yield not_claimed(CONTRIBUTIONS, "no account of contributions is claimed")
        return
    told = []
    for size in subject.several or subject.sizes:
        for uneven in (False, True):
            done = subject.run(size, uneven=uneven)
            wrong = done.failure or balance(subject, done)
            if wrong:
                yield failed(CONTRIBUTIONS, f"N = {size}{', one node slower' if uneven else ''}: {wrong}")
                return
            account = subject.claim.contributions([done.values(rank) for rank in range(size)])
            told = [f"{account.pushed} pushed", f"{account.applied} applied", f"{account.rejected} rejected"]
            told.append(f"{account.in_flight} in flight")
    yield held(CONTRIBUTIONS, f"N = {size}, one node slower: {told[0]} = {' + '.join(told[1:])}")


def balance(subject: Subject, done: Done) -> str:
    """Describe what does not add up in a run, if anything."""
    if done.taken > done.sent:
        return f"{done.taken} messages received and {done.sent} sent"
    if subject.claim is None or subject.claim.contributions is None:
        return ""
    account = subject.claim.contributions([done.values(rank) for rank in range(len(done.nodes))])
    found = f"{account.applied} applied + {account.rejected} rejected + {account.in_flight} in flight"
    if min(account.pushed, account.applied, account.rejected, account.in_flight) < 0:
        return f"{account.pushed} pushed = {found}: no count is negative"
    if account.pushed == 0:
        return "nothing was pushed"
    if account.pushed != account.applied + account.rejected + account.in_flight:
        return f"{account.pushed} pushed, but {found}"
    return ""
