"""The output of ranks: written to their logs, and that of rank 0 also to the terminal."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path

from simcluster.paths.inside import append_to

PIECE_BYTES = 65536
END_S = 5.0
LOOK_S = 0.2
_OF_A_LOG = re.compile(rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+ [A-Z]+ ")


class RankOutput:
    """Where one rank prints: *writer* is for its process, and reaches all of *targets*.

    If there are several, a thread copies, here and not in the rank's process, which may be killed.
    """

    def __init__(self, targets: Sequence[Connection]) -> None:
        self._thread: threading.Thread | None = None
        if len(targets) == 1:
            self.writer = targets[0]
            return
        reader, writer = os.pipe()
        self.writer = Connection(writer, readable=False)
        self._thread = threading.Thread(target=_copy, args=(reader, targets), daemon=True)
        self._thread.start()

    @classmethod
    def to_log(cls, file: Path, *, is_new: bool, is_shown: bool) -> RankOutput:
        """Print to the log *file*, emptied first if *is_new*; also on stderr if *is_shown*."""
        file.parent.mkdir(parents=True, exist_ok=True)
        number = append_to(file.parent, file.name)
        if is_new:
            os.ftruncate(number, 0)
        log = Connection(number, readable=False)
        return cls([log, own_output(2)] if is_shown else [log])

    def end(self) -> None:
        """Let everything arrive that was printed; call it once the process has ended."""
        if self._thread is not None:
            self._thread.join(END_S)


def own_output(descriptor: int) -> Connection:
    """Return this process's own *descriptor*, stdout or stderr, as something that reaches a process to be started."""
    return Connection(os.dup(descriptor), readable=False)


def _copy(reader: int, targets: Sequence[Connection]) -> None:
    while piece := os.read(reader, PIECE_BYTES):
        for target in targets:
            with suppress(OSError):  # a full disk, or a terminal that was closed
                os.write(target.fileno(), piece)
    os.close(reader)
    for target in targets:
        target.close()


@contextmanager
def shown_meanwhile(file: Path) -> Iterator[None]:
    """Show on stderr what a real node appends to its log *file* meanwhile, without the library's own log lines."""
    is_over = threading.Event()
    begin = file.stat().st_size if file.is_file() else 0  # an earlier run's lines
    thread = threading.Thread(target=_follow, args=(file, begin, is_over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join(END_S)


def _follow(file: Path, place: int, is_over: threading.Event) -> None:
    was_over = False
    while not was_over:
        was_over = is_over.wait(LOOK_S)  # once more after the end: the last lines
        with suppress(FileNotFoundError), open(file, "rb") as log:
            log.seek(place)
            lines = log.readlines()
            if lines and not lines[-1].endswith(b"\n") and not was_over:
                del lines[-1]
            place += sum(map(len, lines))
            for line in lines:
                if not _OF_A_LOG.match(line):
                    sys.stderr.write(line.decode(errors="replace"))
            sys.stderr.flush()
