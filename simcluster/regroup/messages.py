"""The messages by which ranks form a new group.

Each is sent as JSON, in a transport message with that single value.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from simcluster.transport import OWN_TAGS

TAG = f"{OWN_TAGS}regroup"
"""The tag of all messages of regrouping. Algorithms never receive a message under this tag."""

MARK = f"{OWN_TAGS}regroup/mark/"
"""Prefix of the tags of marks, which separate the messages of one group from those of the next in a
stream.
"""

Life = tuple[int, int]
"""(rank, incarnation). A node that rejoins starts another life."""


class CaptureName(NamedTuple):
    """The name of a capture: it was made at the end of *step* in group *number*, which *leader*
    formed.
    """

    number: int
    leader: int
    step: int


class JoinRequest(msgspec.Struct, tag="Join"):
    """A message to all ranks: the sender, in its life *incarnation*, asks to be let in."""

    incarnation: int


class Call(msgspec.Struct, tag=True):
    """A leader's request to report captures and losses, in round *round*.

    If *leaves_at* is set, ranks first complete that step.
    """

    round: int
    leaves_at: int | None = None


class Proposal(msgspec.Struct, tag="Propose"):
    """A message to the leader from a rank that has stopped: it reports its captures and losses.

    *number* is the group that the rank was in. *round* is the round of the call that the message
    answers, or 0 if there was no call.
    """

    round: int
    number: int
    held: list[CaptureName]
    dead: list[Life]
    cuts: list[tuple[Life, Life]]
    leaves_at: int | None = None


class Decision(msgspec.Struct, tag=True):
    """A leader's decision, which each of *members* receives: continue from *capture* as group
    *number*.

    The rank *source* transfers the capture to *receivers*, the members that do not have it. *lives*
    has the incarnation of every rank. *lost* and *joined* are the changes from the leader's
    previous group.
    """

    number: int
    leader: int
    members: list[int]
    capture: CaptureName
    source: int
    receivers: list[int]
    lives: list[int]
    lost: list[int]
    joined: list[int]


class Exclusion(msgspec.Struct, tag="Out"):
    """A leader's message to a rank that is excluded because it is cut off from the rank
    *because*.
    """

    because: int


Word = JoinRequest | Call | Proposal | Decision | Exclusion


def mark_of(number: int, leader: int) -> str:
    """Return the mark that precedes all messages to group *number*, which *leader* formed."""
    return f"{MARK}{number}.{leader}"
