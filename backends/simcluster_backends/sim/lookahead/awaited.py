"""The messages of held ranks that other ranks wait for."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from simcluster.transport import ANY, Any_

if TYPE_CHECKING:
    from simcluster.rounds import Rounds
    from simcluster_backends.sim.members import Members


class AwaitedMessages:
    """The waits of ranks when the first one was held; no other wait begins, since `recv` lets the held ones begin.

    *comes*: a message of a rank that is held would come to one that waits for it, and goes on with that.
    """

    def __init__(self) -> None:
        self.comes = False
        self._tags: dict[int | Any_, list[str | Any_]] = {}  # by source
        self._kind: Hashable = None
        self._sent: frozenset[str] = frozenset()  # the tags of the schedule of that kind

    def note(self, members: Members) -> None:
        """Note what is awaited now, when the first rank is held."""
        self.comes, self._tags = False, {}
        for member in members:
            for source, tag in member.inbox.mailbox.awaited_messages():
                self._tags.setdefault(source, []).append(tag)

    def check(self, rank: int, rounds: Rounds) -> None:
        """Note that *rank* is held before *rounds*. It sends nothing else, since those last until all have entered."""
        tags = [*self._tags.get(rank, ()), *self._tags.get(ANY, ())]
        self.comes = self.comes or any(isinstance(tag, Any_) or tag in self._tags_of(rounds) for tag in tags)

    def _tags_of(self, rounds: Rounds) -> frozenset[str]:
        if rounds.kind != self._kind:
            self._kind = rounds.kind
            self._sent = frozenset([rounds.tag(number) for number in range(rounds.count)])
        return self._sent
