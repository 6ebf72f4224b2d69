"""The messages by which ranks form a group again, as JSON in a message's only value."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import msgspec

from simcluster.transport import OWN_TAGS

TAG = f"{OWN_TAGS}regroup"
"""The tag of all these messages. No algorithm receives them."""

MARK = f"{OWN_TAGS}regroup/mark/"
"""Prefix of the tags that separate one group's messages from the next group's in a stream."""

Life: TypeAlias = tuple[int, int]
"""(rank, incarnation): a node that rejoins has another life."""


class CaptureName(NamedTuple):
    """The name of a capture: made at the end of *step* in the group of *number* that *leader* formed."""

    number: int
    leader: int
    step: int


class JoinRequest(msgspec.Struct, tag="Join"):
    """To all: the sender, in its life *incarnation*, asks to be let in."""

    incarnation: int


class Call(msgspec.Struct, tag=True):
    """From the leader, in *round*: report what you hold, but not before the end of step *leaves_at*, if given."""

    round: int
    leaves_at: int | None = None


class Proposal(msgspec.Struct, tag="Propose"):
    """To the leader: the sender has stopped, belongs to the group of *number*, holds these captures and knows of these
    losses. *round* is that of the call it answers; 0 without a call.
    """

    round: int
    number: int
    held: list[CaptureName]
    dead: list[Life]
    cuts: list[tuple[Life, Life]]
    leaves_at: int | None = None


class Decision(msgspec.Struct, tag=True):
    """From the leader to each of *members*: continue as the group of *number* from *capture*.

    *source* transfers the capture to members that do not hold it. *lives* has every rank's incarnation. *lost* and
    *joined* are the changes from the leader's previous group.
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
    """From the leader: the receiver is excluded, since it is cut off from *because*."""

    because: int


Word: TypeAlias = JoinRequest | Call | Proposal | Decision | Exclusion


def mark_of(number: int, leader: int) -> str:
    """Return the mark before the first message to the group of *number* that *leader* formed."""
    return f"{MARK}{number}.{leader}"
