"""Handle the output of ranks.

All ranks write to their logs, and lines in rank 0's log are also shown in the terminal.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path

from simcluster.paths.inside import append_to

END_S = 5.0
LOOK_S = 0.2
_OF_A_LOG = re.compile(rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+ [A-Z]+ ")


def own_output() -> Connection:
    """Return this process's stdout as a connection, which can be passed to a process that it
    starts.
    """
    return Connection(os.dup(1), readable=False)


def log_output(file: Path, *, is_new: bool) -> Connection:
    """Return the log *file*, opened for appending, as a connection. If *is_new*, empty the file
    first.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    number = append_to(file.parent, file.name)
    if is_new:
        os.ftruncate(number, 0)
    return Connection(number, readable=False)


@contextmanager
def shown_meanwhile(file: Path, *, has_own_lines: bool = True) -> Iterator[None]:
    """Within the block, show on stderr the lines that a rank appends to its log *file*.

    *has_own_lines*: the log also has lines from this library, which are not shown.
    """
    is_over = threading.Event()
    begin = file.stat().st_size if file.is_file() else 0  # skip the lines of an earlier run
    thread = threading.Thread(target=_follow, args=(file, begin, is_over, has_own_lines), daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join(END_S)


def _follow(file: Path, place: int, is_over: threading.Event, has_own_lines: bool) -> None:
    was_over = False
    while not was_over:
        was_over = is_over.wait(LOOK_S)  # look once more after the end, for the last lines
        with suppress(OSError), open(file, "rb") as log:
            log.seek(place)
            lines = log.readlines()
            if lines and not lines[-1].endswith(b"\n") and not was_over:
                del lines[-1]
            place += sum(map(len, lines))
            for line in lines:
                if not (has_own_lines and _OF_A_LOG.match(line)):
                    sys.stderr.write(line.decode(errors="replace"))
            sys.stderr.flush()
