"""One rank's messages: to one life of each receiver, sent again if the previous life got them, and from all others,
with the marks between groups in their streams, and losses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgspec

from simcluster.errors import PeerLost
from simcluster.payload import Message
from simcluster.regroup.membership_view import MembershipFacts
from simcluster.regroup.messages import MARK, TAG, Life, Word
from simcluster.transport import ANY, Transport

LOOK_S = 1e-3
"""Polling interval of a rank without peers for one that others report as back."""


class Voice:
    """The sender of *node*, with its *facts*. *lose* takes in a PeerLost; *until* waits for a condition."""

    def __init__(
        self, node: Transport, facts: MembershipFacts, lose: Callable[[PeerLost], None],
        until: Callable[[Callable[[], bool]], Coroutine[Any, Any, None]],
    ) -> None:  # fmt: skip
        self._node, self._facts, self._lose, self._until = node, facts, lose, until
        self._tasks: dict[asyncio.Task[None], None] = {}  # as an ordered set
        self._said: list[tuple[int, int, str, dict[str, str] | None]] = []  # (to, for which life, tag, content)

    def say(self, to: int, word: Word) -> None:
        self.post(to, TAG, {"word": msgspec.json.encode(word).decode()})

    def post(self, to: int, tag: str, content: dict[str, str] | None = None) -> None:
        """Send in order per receiver, independently of other receivers: one path may be cut while others are open."""
        task = asyncio.create_task(self._send(to, tag, content))
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    def say_again(self, rank: int) -> None:
        """Repeat to the present life of *rank*, as reported by others, what went to the previous one."""
        missed = [said for said in self._said if said[:2] == self._facts.life(rank)]
        self._said = [said for said in self._said if said[0] != rank]
        for to, _, tag, content in missed:
            self.post(to, tag, content)

    def forget(self) -> None:
        """Start another agreement: earlier messages are not repeated."""
        self._said.clear()

    def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()

    async def _send(self, to: int, tag: str, content: dict[str, str] | None) -> None:
        life = self._facts.life(to)
        while life == self._facts.life(to):
            try:
                await self._node.send(to, tag, content)
            except PeerLost as lost:
                self._lose(lost)
                if not self._facts.is_past(lost.rank, lost.incarnation):
                    return
                # Others report that the rank is back: wait for its new life to appear here.
                await self._until(lambda: to in self._node.peers or self._facts.is_lost(to))
                if self._facts.is_lost(to):
                    return
            else:
                self._said.append((*life, tag, content))
                return


class Ear:
    """The receiver of *node*, with its *facts*. *hear* takes in a message, *lose* a PeerLost; *notify* is called at the
    end of a stream. *marks* has the last mark in the stream from each life.
    """

    def __init__(
        self, node: Transport, facts: MembershipFacts, hear: Callable[[Message], None],
        lose: Callable[[PeerLost], None], notify: Callable[[], None],
    ) -> None:  # fmt: skip
        self._node, self._facts, self._hear, self._lose, self._notify = node, facts, hear, lose, notify
        self.marks: dict[Life, str] = {}
        self._heard, self._ended = list[int](), set[int]()
        self._watching: asyncio.Task[None] | None = None
        self._draining: dict[int, asyncio.Task[None]] = {}
        self.behind: set[int] = set()  # ranks of which the transport just lost an earlier life than others reported

    def watch(self) -> None:
        """Start to receive. Without peers there is nothing to receive, unless one is known to be on its way."""
        if (self._watching is None or self._watching.done()) and (self._node.peers or self._awaits_a_life):
            self._watching = asyncio.create_task(self._watch())

    def drain(self, ranks: Sequence[int], number: int) -> None:
        """Receive and drop what *ranks* sent to groups before *number*, so that it does not block later messages. This
        also tells which of them have ended.
        """
        for rank in ranks:
            task = self._draining.get(rank)
            if rank in self.behind and rank not in self._node.peers:
                continue  # its present life has not reached this node: its JoinRequest will arrive
            self.behind.discard(rank)
            if rank != self._facts.rank and (task is None or task.done()):
                self._draining[rank] = asyncio.create_task(self._drain(rank, number))

    def since_last(self) -> tuple[list[int], set[int]]:
        """Return the ranks whose marks have come since the last call, and those no longer drained since then."""
        since, self._heard, self._ended = (self._heard, self._ended), [], set()
        return since

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
        """Whether others report a rank as back that this one knows only in its previous life."""
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
                        return  # nothing else would ever arrive
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
                    self._heard.append(rank)
                    if int(message.tag.removeprefix(MARK).partition(".")[0]) >= number:
                        return
        except PeerLost as lost:
            self._lose(lost)
        finally:
            self._ended.add(rank)
            self._notify()
