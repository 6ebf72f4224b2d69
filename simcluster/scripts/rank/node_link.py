"""A rank's end of its link to the node program: it tells and asks, with what the script has spent and where it is."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from multiprocessing.connection import Connection
from pathlib import Path
from traceback import walk_stack
from types import FrameType
from typing import Any, NoReturn

import msgspec

from simcluster.documents.own_frames import is_users
from simcluster.process.signals import kill_group
from simcluster.scripts.arena import SharedArena
from simcluster.scripts.messages import ClusterAnswer, FromRank
from simcluster.scripts.rank.work_meter import Meter

_is_users = lru_cache(maxsize=4096)(is_users)


class NodeLink:
    """The link of this process; *asking* and *answers* are pipes."""

    def __init__(self, asking: Connection, answers: Connection, arena: SharedArena, meter: Meter) -> None:
        self.arena = arena
        self.memory = meter.memory
        self.on_call: Callable[[str], None]  # is given the operation of a call before it is made
        self._owner = os.getpid()
        self._asking, self._answers = asking, answers
        self._meter = meter
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(ClusterAnswer).decode

    @property
    def is_ranks(self) -> bool:
        """Whether this process is the rank's own, and not a fork of it."""
        return os.getpid() == self._owner

    def tell(self, message: FromRank) -> None:
        """Send *message*, and go on. The process ends if its node program has.

        Raise RuntimeError in a process that the script has forked: only the rank itself takes part.
        """
        if not self.is_ranks:
            raise RuntimeError(f"{script_line()}: a process that the script has forked is no rank of the cluster")
        message.spent = self._meter.take()
        message.line = script_line()
        try:
            self._asking.send_bytes(self._encode(message))
        except OSError:
            end_with_node(self.arena.folder)

    def ask(self, message: FromRank) -> ClusterAnswer:
        """Send *message*, and wait for its answer."""
        self.tell(message)
        try:
            return self._decode(self._answers.recv_bytes())
        except (OSError, EOFError):
            end_with_node(self.arena.folder)

    @contextmanager
    def unmetered(self) -> Iterator[None]:
        """Leave what is computed in the block out of the script's work."""
        before, self._meter.is_paused = self._meter.is_paused, True
        try:
            yield
        finally:
            self._meter.is_paused = before


def refuse(what: str, expected: str, *_: Any, **__: Any) -> NoReturn:
    """Raise NotImplementedError for *what*, with the script's line."""
    raise NotImplementedError(f"{script_line()}: {what} is not there in a cluster of simcluster; {expected}")


@cache
def note_once(text: str) -> None:
    """Print *text* as a note, the first time that this process is given it."""
    print(f"note: {text}", file=sys.stderr)


def end_with_node(memory: Path) -> NoReturn:
    """End this process, as its node program has ended, with those that the script has started; remove *memory*."""
    shutil.rmtree(memory, ignore_errors=True)
    kill_group(os.getpid())
    os._exit(1)


def script_line(innermost: FrameType | None = None) -> str:
    """Return "file.py:12", the line of the script in the stack of *innermost*, by default of the caller."""
    return script_place(innermost or sys._getframe(1))[0]


def script_place(innermost: FrameType) -> tuple[str, FrameType | None]:
    """Return the line of the script in the stack of *innermost*, and the frame of what that line calls, if any."""
    called = None
    for frame, line in walk_stack(innermost):
        if _is_users(frame.f_code.co_filename):
            return f"{frame.f_code.co_filename}:{line}", called
        called = frame
    return "", None
