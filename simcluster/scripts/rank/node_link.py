"""A rank's end of the link to its node program.

Every message contains the script's work since the previous message, and the script's current line.
"""

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
    """The link of a rank's process to its node program.

    Messages go out through the pipe *asking*, and answers arrive through the pipe *answers*.
    """

    def __init__(self, asking: Connection, answers: Connection, arena: SharedArena, meter: Meter) -> None:
        self.arena = arena
        self.memory = meter.memory
        self.on_call: Callable[[str], None]  # called with the operation, before each call is made
        self._owner = os.getpid()
        self._asking, self._answers = asking, answers
        self._meter = meter
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(ClusterAnswer).decode

    @property
    def is_ranks(self) -> bool:
        """Whether this process is the rank's own, not one that the script has forked."""
        return os.getpid() == self._owner

    def tell(self, message: FromRank) -> None:
        """Send *message* without waiting for an answer.

        If the node program has ended, end this process. Raise RuntimeError in a process that the
        script has forked, since only the rank's own process takes part in the run.
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
        """Send *message*, wait for its answer, and return the answer."""
        self.tell(message)
        try:
            return self._decode(self._answers.recv_bytes())
        except (OSError, EOFError):
            end_with_node(self.arena.folder)

    @contextmanager
    def unmetered(self) -> Iterator[None]:
        """Do not count computation inside the block as the script's work."""
        before, self._meter.is_paused = self._meter.is_paused, True
        try:
            yield
        finally:
            self._meter.is_paused = before


def refuse(what: str, expected: str, *_: Any, **__: Any) -> NoReturn:
    """Raise NotImplementedError: *what* is not available. The message has the script's line and
    *expected*.
    """
    raise NotImplementedError(f"{script_line()}: {what} is not there in a cluster of simcluster; {expected}")


@cache
def note_once(text: str) -> None:
    """Print *text* as a note, the first time that it is passed in this process."""
    print(f"note: {text}", file=sys.stderr)


def end_with_node(memory: Path) -> NoReturn:
    """Remove *memory*, and end this process and all processes that the script has started.

    This is called when the node program has ended.
    """
    shutil.rmtree(memory, ignore_errors=True)
    kill_group(os.getpid())
    os._exit(1)


def script_line(innermost: FrameType | None = None) -> str:
    """Return the script's current line, such as "file.py:12".

    It is looked up in the stack of *innermost*, which defaults to the caller's frame.
    """
    return script_place(innermost or sys._getframe(1))[0]


def script_place(innermost: FrameType) -> tuple[str, FrameType | None]:
    """Return (the script's current line in the stack of *innermost*, the frame that this line
    called).

    The frame is None if the line called none. The line is "" if the stack has no frame of the
    script.
    """
    called = None
    for frame, line in walk_stack(innermost):
        if _is_users(frame.f_code.co_filename):
            return f"{frame.f_code.co_filename}:{line}", called
        called = frame
    return "", None
