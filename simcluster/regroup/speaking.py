"""One rank's messages to the others: each to one life of its receiver, sent again if the previous life got it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from simcluster.errors import PeerLost
from simcluster.regroup.membership_view import Facts
from simcluster.regroup.messages import TAG, Word
from simcluster.transport import Transport


class Voice:
    """The sender of *node*, with its *facts*. *lose* takes in a PeerLost; *until* waits for a condition."""

    def __init__(
        self, node: Transport, facts: Facts, lose: Callable[[PeerLost], None],
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
