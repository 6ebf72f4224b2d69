"""A transport that notes mistakes of a user's algorithm, other than those that stop the run.

The transport does not affect the run.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from simcluster.documents.own_lines import update_line
from simcluster.payload import Message, Sendable
from simcluster.process.own_frames import own_place, user_frames, written
from simcluster.runs.doubts import IN_PLACE, READ, SENT
from simcluster.runs.record import NodeRecord
from simcluster.shortcuts import Shortcuts, shortcuts_of
from simcluster.transport import ANY, Any_, Cost, Transport
from simcluster.workloads import Replica

T = TypeVar("T")

LOOKED_AT = 8
"""The number of tensors whose first values are compared.

torch does not count changes through `tensor.data`, but a change of the first value shows them.
"""

_NUMBER = re.compile(r"\d+")


class AlgorithmWatch:
    """A wrapper of the transport *node* that notes suspicious behaviour in *record*.

    It notes weights of *replica* that change outside `compute`, and the tags of messages.
    """

    def __init__(self, node: Transport, replica: Replica, record: NodeRecord) -> None:
        self._node = node
        self._replica = replica
        self._record = record
        self._working = 0
        self._unplaced = False
        self._sent: dict[str, tuple[str, int]] = {}
        self._read: set[str] = set()
        self._before = self._weights()
        fast = shortcuts_of(node)
        self.fast = fast and Shortcuts(self._noted(fast.exchange), self._noted(fast.land), fast.rounds_ahead)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)

    def _noted(self, receive: Callable[..., T] | None) -> Callable[..., T] | None:
        """Return *receive*, wrapped to note the tags among its arguments; None stays None."""

        def noted(*args: Any) -> T:
            assert receive is not None
            self._look()
            self._read.update(_kind(arg) for arg in args if isinstance(arg, str))
            return receive(*args)

        return receive and noted

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
        """Write the tags that were sent and received to the record."""
        for kind, (place, times) in self._sent.items():
            self._record.notice(SENT, kind, place, times)
        for kind in sorted(self._read):
            self._record.notice(READ, kind, "")

    def _weights(self) -> tuple[Any, ...]:
        """Return a fingerprint of the weights: (loads and steps, changes, first values).

        It stays equal only if no weight changed, except through `tensor.data` in a tensor after the
        first LOOKED_AT.
        """
        replica = self._replica
        if not replica.computes or replica.is_in_parts:
            return ()
        # Compare strings: NaN is not equal to itself, but "nan" is.
        firsts = (repr(live.reshape(-1)[:1].tolist()) for live in replica.live()[:LOOKED_AT])
        return replica.loads + replica.steps_taken, replica.changes(), *firsts

    def _look(self) -> None:
        """Note weights that changed since the last look, except by `compute`, `load` or `apply`."""
        if self._working:
            return
        before, self._before = self._before, self._weights()
        is_loaded = self._before[:1] != before[:1]
        if self._before != before and not is_loaded:
            self._unplaced = True
        frames = list(user_frames(sys._getframe())) if self._unplaced else []
        if not frames:
            return  # a task of the library looks: let the next look from user code name the line
        self._unplaced = False
        places = [(frame.f_code.co_filename, frame.f_code.co_name, frame.f_lineno) for frame in frames]
        lines = [update_line(*place) for place in places]
        # Prefer the frame with a line that changes tensors; without one, take the innermost.
        number = next((number for number, line in enumerate(lines) if line), 0)
        line, (file, name, _) = lines[number], places[number]
        if line != 0:
            at = written(frames[number]) if line is None else f"{file}:{line} ({name})"
            self._record.notice(IN_PLACE, "" if line else "before", at)


def _kind(tag: str) -> str:
    """Return *tag* with # for each number, since tags often count steps or chunks."""
    return _NUMBER.sub("#", tag)
