"""One rank's ear for the others: their words, the marks between two groups in their streams, and their losses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from simcluster.errors import PeerLost
from simcluster.payload import Message
from simcluster.regroup.membership_view import Facts
from simcluster.regroup.messages import MARK, TAG, Life, number_of
from simcluster.transport import ANY, Transport

LOOK_S = 1e-3
"""A rank whose transport has no peer left looks this often for one that others have said is back."""


class Ear:
    """Of *node*, which knows *facts*. *hear* takes in a word, *lose* a PeerLost; *notify* is called at the end of a
    stream. *marks* has the last mark in the stream from each life.
    """

    def __init__(
        self,
        node: Transport,
        facts: Facts,
        hear: Callable[[Message], None],
        lose: Callable[[PeerLost], None],
        notify: Callable[[], None],
    ) -> None:
        self._node, self._facts, self._hear, self._lose, self._notify = node, facts, hear, lose, notify
        self.marks: dict[Life, str] = {}
        self._watching: asyncio.Task[None] | None = None
        self._draining: dict[int, asyncio.Task[None]] = {}
        self._behind: set[int] = set()  # ranks whose earlier life the transport still has; only asked for members

    def watch(self) -> None:
        """Hear words from now on. With no peer there is nothing to hear, unless one is known to be on its way."""
        if (self._watching is None or self._watching.done()) and (self._node.peers or self._awaits_a_life):
            self._watching = asyncio.create_task(self._watch())

    def falls_behind(self, rank: int) -> None:
        """Note that the transport has just lost an earlier life of *rank* than the one that others have told of."""
        self._behind.add(rank)

    def drain(self, ranks: Sequence[int], number: int) -> None:
        """Take all that these have sent to groups before that of *number*: it must not hold up what follows. So it is
        heard, too, which of them have ended.
        """
        for rank in ranks:
            task = self._draining.get(rank)
            if rank in self._behind and rank not in self._node.peers:
                continue  # its present life has yet to reach this node: its Join will be heard
            self._behind.discard(rank)
            if rank != self._facts.rank and (task is None or task.done()):
                self._draining[rank] = asyncio.create_task(self._drain(rank, number))

    def stop_draining(self) -> None:
        for task in self._draining.values():
            task.cancel()
        self._draining = {}

    def close(self) -> None:
        self.stop_draining()
        if self._watching is not None:
            self._watching.cancel()

    @property
    def _awaits_a_life(self) -> bool:
        """Whether others have said that a rank is back whose former life was the last that this one heard of."""
        facts = self._facts
        back = [rank for rank, life in enumerate(facts.lives) if life and rank != facts.rank]
        return any(not facts.is_lost(rank) and rank not in facts.finished for rank in back)

    async def _watch(self) -> None:
        while True:
            try:
                message = await self._node.recv(ANY, TAG)
            except PeerLost as lost:
                self._lose(lost)
                while not self._node.peers:
                    if not self._awaits_a_life:
                        return  # from now on that would be all there is to hear
                    await asyncio.sleep(LOOK_S)
            else:
                self._hear(message)

    async def _drain(self, rank: int, number: int) -> None:
        try:
            while True:
                message = await self._node.recv(rank, ANY)
                if message.tag == TAG:
                    self._hear(message)
                elif message.tag.startswith(MARK):
                    self.marks[rank, message.incarnation] = message.tag
                    if number_of(message.tag) >= number:
                        return
        except PeerLost as lost:
            self._lose(lost)
        finally:
            self._notify()
