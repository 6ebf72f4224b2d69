"""Admission to a run: it begins with all nodes that are expected, or with as many as are enough; others join late."""

from __future__ import annotations

from collections.abc import Sequence

from simcluster.errors import nearest
from simcluster_backends.sockets.launcher.member import Member
from simcluster_backends.sockets.wire.messages import Addresses


def refusal(name: str, members: Sequence[Member]) -> str | None:
    """Why somebody called *name* may not join; None if it may, since nobody is there by that name, or any more."""
    member = next((member for member in members if member.name == name), None)
    if member is None:
        return f"no node {name!r} in this run; {nearest(name, [member.name for member in members])}"
    taken = member.connection is not None or (member.ended and member.gone is None)
    return f"the name {name!r} is taken" if taken else None


def are_enough(members: Sequence[Member], min_workers: int | None) -> bool:
    """Whether the run can begin.

    Not without rank 0, which evaluates, and serves where there is a server: the others would wait for nobody.
    """
    expected = [member for member in members if member.gone is None]
    ready = [member for member in expected if member.listening is not None]
    return len(ready) >= min(min_workers or len(expected), len(expected)) and expected[:1] == ready[:1]


def begin_with(members: Sequence[Member]) -> list[Member]:
    """Those of *members* who are ready, each told where the others are; who is not, joins late, if it comes."""
    founders = [member for member in members if member.gone is None and member.listening is not None]
    for member in members:
        if member.gone is None and member.listening is None:
            member.leave_out()
            if member.connection is not None or not member.by_hand:
                member.come()
    gone = {member.rank: member.gone for member in members if member.gone is not None}
    addresses = [member.listening or ("", 0) for member in members]
    for member in founders:
        member.tell(Addresses(addresses, gone))
    return founders


def missing(members: Sequence[Member], founders: Sequence[Member]) -> list[str]:
    """Who keeps the run from beginning, in words; *founders* is empty until they are known."""
    return [
        f"{member.label} has not {'got ready' if founders else 'joined'}"
        for member in members
        if member.gone is None and not (member.connected if founders else member.listening)
    ]
