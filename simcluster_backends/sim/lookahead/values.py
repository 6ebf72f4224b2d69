"""The values of all ranks after computed rounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simcluster.payload import Message, freeze
from simcluster.rounds import NO_RANK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simcluster.rounds import Rounds


def hand_over(by_rank: Sequence[Rounds], over: int) -> None:
    """Let each rank receive what the others send it in the first *over* rounds; *by_rank* has each rank's own."""
    for number in range(over):
        contents = [rounds.content(number, rank) for rank, rounds in enumerate(by_rank)]
        for rank, rounds in enumerate(by_rank):
            source = int(rounds.source(number, rank))
            if source != NO_RANK and rounds.receives is not None:
                rounds.receives(number, Message(source, rounds.tag(number), freeze(contents[source]), 0))
