"""The messages by which ranks form a group again: a few words, as JSON in a message's one value."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import msgspec

from simcluster.payload import Message
from simcluster.transport import OWN_TAGS

TAG = f"{OWN_TAGS}regroup"
"""Of every word. No algorithm receives it."""

MARK = f"{OWN_TAGS}regroup/mark/"
"""What a tag begins with that stands in a stream between one group's messages and the next one's."""

Life: TypeAlias = tuple[int, int]
"""(rank, which of its lives): a node that comes back is another one."""


class Held(NamedTuple):
    """The name of a capture: made at the end of *step* in the group of *number* that *leader* formed."""

    number: int
    leader: int
    step: int


class Join(msgspec.Struct, tag=True):
    """To everybody: the sender, in its life *incarnation*, wants to be let in."""

    incarnation: int


class Call(msgspec.Struct, tag=True):
    """From who leads: say what you hold; in its *round*. *leaves_at*: not before this step is over, at the end of
    which a member has left.
    """

    round: int
    leaves_at: int | None = None


class Propose(msgspec.Struct, tag=True):
    """To who leads: the sender has stopped, belongs to the group of *number*, holds these captures and knows of these
    losses. *round* is that of the call that this answers; 0 if nobody called.
    """

    round: int
    number: int
    held: list[Held]
    dead: list[Life]
    cuts: list[tuple[Life, Life]]
    leaves_at: int | None = None


class Decision(msgspec.Struct, tag=True):
    """From who leads, to each of *members*: they go on as the group of *number* from *capture*.

    Who does not hold it is given it by *source*. *lives* has everybody's incarnation. *lost* and *joined* are the
    difference from the leader's group before.
    """

    number: int
    leader: int
    members: list[int]
    capture: Held
    source: int
    receivers: list[int]
    lives: list[int]
    lost: list[int]
    joined: list[int]


class Out(msgspec.Struct, tag=True):
    """From who leads: the receiver belongs to no group any more, since it is cut off from *because*."""

    because: int


Word: TypeAlias = Join | Call | Propose | Decision | Out


def spoken(word: Word) -> dict[str, str]:
    """*word* as the content of a message."""
    return {"word": msgspec.json.encode(word).decode()}


def understood(message: Message) -> Word:
    """The way back."""
    word: Word = msgspec.json.decode(message["word"], type=Word)
    return word


def mark_of(number: int, leader: int) -> str:
    """The mark before the first message to the group of *number* that *leader* formed."""
    return f"{MARK}{number}.{leader}"


def number_of(mark: str) -> int:
    """The number of the group that *mark* stands before."""
    return int(mark.removeprefix(MARK).partition(".")[0])
