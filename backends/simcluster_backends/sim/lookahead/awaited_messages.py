"""The messages of held ranks that other ranks wait for."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from simcluster.transport import ANY, Any_

if TYPE_CHECKING:
    from simcluster.rounds import Rounds
    from simcluster_backends.sim.members import Members


class AwaitedMessages:
    """The messages that ranks were waiting for when the first rank was held.

    No rank begins to wait later, since `recv` first lets the held ranks begin. *comes* says whether
    a held rank would have sent one of these messages, so that its receiver would have continued.
    """

    def __init__(self) -> None:
        self.comes = False
        self._tags: dict[int | Any_, list[str | Any_]] = {}  # by source
        self._kind: Hashable = None
        self._sent: frozenset[str] = frozenset()  # the tags of the schedule of kind _kind

    def note(self, members: Members) -> None:
        """Note the messages that ranks wait for now, when the first rank is held."""
        self.comes = False
        self._tags = {}
        for member in members:
            for source, tag in member.inbox.mailbox.awaited_messages():
                self._tags.setdefault(source, []).append(tag)

    def check(self, rank: int, rounds: Rounds) -> None:
        """Update *comes* for *rank*, which is about to be held before *rounds*.

        By now, *rank* would have sent only messages of *rounds*: no rank ends *rounds* before all
        have entered.
        """
        tags = [*self._tags.get(rank, ()), *self._tags.get(ANY, ())]
        self.comes = self.comes or any(isinstance(tag, Any_) or tag in self._tags_of(rounds) for tag in tags)

    def _tags_of(self, rounds: Rounds) -> frozenset[str]:
        if rounds.kind != self._kind:
            self._kind = rounds.kind
            self._sent = frozenset([rounds.tag(number) for number in range(rounds.count)])
        return self._sent
