"""Send and receive the messages of regrouping at one rank.

The sender follows a rank into its next life. The receiver also handles losses, and the marks
between groups in the streams of other ranks.
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
"""Polling interval, in seconds, of a rank that has no peers but waits for a rank that others report
as back.
"""


class Voice:
    """A sender of messages from *node*, based on the *facts* that the node knows.

    *lose* is called with each PeerLost, and *until* waits for a condition.
    """

    def __init__(
        self, node: Transport, facts: MembershipFacts, lose: Callable[[PeerLost], None],
        until: Callable[[Callable[[], bool]], Coroutine[Any, Any, None]],
    ) -> None:  # fmt: skip
        self._node = node
        self._facts = facts
        self._lose = lose
        self._until = until
        self._tasks: dict[asyncio.Task[None], None] = {}  # an ordered set
        # The messages sent: (receiver, its incarnation, tag, content).
        self._said: list[tuple[int, int, str, dict[str, str] | None]] = []

    def say(self, to: int, word: Word) -> None:
        self.post(to, TAG, {"word": msgspec.json.encode(word).decode()})

    def post(self, to: int, tag: str, content: dict[str, str] | None = None) -> None:
        """Send *content* to rank *to* in the background, so a receiver that cannot be reached does
        not delay messages to others.
        """
        task = asyncio.create_task(self._send(to, tag, content))
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    def say_again(self, rank: int) -> None:
        """Send again the messages for the present life of *rank* that went to its previous life."""
        missed = [said for said in self._said if said[:2] == self._facts.life(rank)]
        self._said = [said for said in self._said if said[0] != rank]
        for to, _, tag, content in missed:
            self.post(to, tag, content)

    def forget(self) -> None:
        """At the start of another agreement, forget all messages sent so far, so that none is sent
        again.
        """
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
                # Others report that the rank is back: wait until its new life reaches this node.
                await self._until(lambda: to in self._node.peers or self._facts.is_lost(to))
                if self._facts.is_lost(to):
                    return
            else:
                self._said.append((*life, tag, content))
                return


class Ear:
    """A receiver of messages at *node*, based on the *facts* that the node knows.

    *hear* is called with each message, *lose* with each PeerLost, and *notify* when draining a
    stream ends. *marks* maps a life to the last mark in its stream.
    """

    def __init__(
        self, node: Transport, facts: MembershipFacts, hear: Callable[[Message], None],
        lose: Callable[[PeerLost], None], notify: Callable[[], None],
    ) -> None:  # fmt: skip
        self._node = node
        self._facts = facts
        self._hear = hear
        self._lose = lose
        self._notify = notify
        self.marks: dict[Life, str] = {}
        self._heard, self._ended = list[int](), set[int]()
        self._watching: asyncio.Task[None] | None = None
        self._draining: dict[int, asyncio.Task[None]] = {}
        # Ranks with a new life, reported by others, that has not reached this node yet.
        self.behind: set[int] = set()

    def watch(self) -> None:
        """Start to receive.

        Do nothing without peers, unless a rank is reported as back, since nothing would arrive.
        """
        if (self._watching is None or self._watching.done()) and (self._node.peers or self._awaits_a_life):
            self._watching = asyncio.create_task(self._watch())

    def drain(self, ranks: Sequence[int], number: int) -> None:
        """Receive and drop the messages of *ranks* to groups before *number*, so that they do not
        block later messages.

        Draining also reveals which of the ranks have ended.
        """
        for rank in ranks:
            task = self._draining.get(rank)
            if rank in self.behind and rank not in self._node.peers:
                # The rank's present life has not reached this node yet; its JoinRequest will
                # arrive.
                continue
            self.behind.discard(rank)
            if rank != self._facts.rank and (task is None or task.done()):
                self._draining[rank] = asyncio.create_task(self._drain(rank, number))

    def since_last(self) -> tuple[list[int], set[int]]:
        """Return (the ranks that sent marks, the ranks that are no longer drained), both since the
        last call.
        """
        since = (self._heard, self._ended)
        self._heard = []
        self._ended = set()
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
        """Whether others report that a rank has rejoined, in a life that this node does not know to
        be lost or finished.
        """
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
                        return  # without peers, nothing would ever arrive
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
