"""A node that notes mistakes of a user's algorithm that leave a run that looks well; it changes nothing."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from simcluster.documents.own_lines import update_line
from simcluster.payload import Message, Sendable
from simcluster.process.places import own_place, user_frames, written
from simcluster.runs.doubts import IN_PLACE, READ, SENT
from simcluster.runs.record import NodeRecord
from simcluster.transport import ANY, Any_, Cost, Transport
from simcluster.workloads import Replica

T = TypeVar("T")

READING = ("ask", "exchange", "gather", "land")
"""Verbs of simcluster.transport.OptionalVerbs that receive under the tags that they are given."""

LOOKED_AT = 8
"""The weights of which a number is compared, besides the counts of changes, which `tensor.data` evades."""

_NUMBER = re.compile(r"\d+")


class AlgorithmWatch:
    """*node*, noting in *record* weights of *replica* that change outside `compute`, and the tags sent and received."""

    def __init__(self, node: Transport, replica: Replica, record: NodeRecord) -> None:
        self._node, self._replica, self._record = node, replica, record
        self._working = 0
        self._unplaced = False
        self._sent: dict[str, tuple[str, int]] = {}
        self._read: set[str] = set()
        self._before = self._weights()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._node, name)
        if name not in READING:
            return found

        @wraps(found)
        def receiving(*args: Any) -> Any:
            self._look()
            self._read.update(_kind(arg) for arg in args if isinstance(arg, str))
            return found(*args)

        return receiving

    async def send(self, to: int, tag: str, content: Sendable) -> None:
        self._look()
        if isinstance(tag, str):
            place, times = self._sent.get(_kind(tag)) or (own_place(sys._getframe()), 0)
            self._sent[_kind(tag)] = place, times + 1
        await self._node.send(to, tag, content)

    async def recv(self, source: int | Any_ = ANY, tag: str | Any_ = ANY) -> Message:
        self._look()
        message = await self._node.recv(source, tag)
        self._read.add(_kind(message.tag))
        return message

    async def compute(self, work: Callable[..., T], *args: Any, cost: Cost, **kwargs: Any) -> T:
        self._look()
        self._working += 1
        try:
            return await self._node.compute(work, *args, cost=cost, **kwargs)
        finally:
            self._working -= 1
            self._before = self._weights()

    def record(self, *, step: int, **metrics: float) -> None:
        self._look()
        self._node.record(step=step, **metrics)

    def end(self) -> None:
        """Note what was sent and received."""
        for kind, (place, times) in self._sent.items():
            self._record.notice(SENT, kind, place, times)
        for kind in sorted(self._read):
            self._record.notice(READ, kind, "")

    def _weights(self) -> tuple[Any, ...]:
        """Return what is equal if no weight has changed: but one of many by `tensor.data`."""
        replica = self._replica
        if not replica.computes or replica.is_in_parts:
            return ()
        firsts = (repr(live.reshape(-1)[:1].tolist()) for live in replica.live()[:LOOKED_AT])  # nan is unlike itself
        return replica.loads + replica.steps_taken, replica.changes(), *firsts

    def _look(self) -> None:
        """Note weights that have changed since the last look, by neither work, `replica.load` nor `replica.apply`."""
        if self._working:
            return
        before, self._before = self._before, self._weights()
        is_loaded = self._before[:1] != before[:1]
        if self._before != before and not is_loaded:
            self._unplaced = True
        frames = list(user_frames(sys._getframe())) if self._unplaced else []
        if not frames:
            return  # none in a task of the library: the next look names the line
        self._unplaced = False
        places = [(frame.f_code.co_filename, frame.f_code.co_name, frame.f_lineno) for frame in frames]
        lines = [update_line(*place) for place in places]
        number = next((number for number, line in enumerate(lines) if line), 0)  # else the innermost
        line, (file, name, _) = lines[number], places[number]
        if line != 0:
            at = written(frames[number]) if line is None else f"{file}:{line} ({name})"
            self._record.notice(IN_PLACE, "" if line else "before", at)


def _kind(tag: str) -> str:
    """Return *tag* with its numbers as one: those of steps and chunks."""
    return _NUMBER.sub("#", tag)
