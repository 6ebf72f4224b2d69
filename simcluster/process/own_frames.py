"""Find user code: frames outside Python, installed packages and simcluster, and their locations in
source files.
"""

from __future__ import annotations

import asyncio
import linecache
import os
import re
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any

_PYTHON = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib", "scripts"))
MOST_LINE = 120

_BACKENDS = find_spec("simcluster_backends")

LIBRARY = (Path(__file__).parent.parent, *map(Path, (_BACKENDS and _BACKENDS.submodule_search_locations) or ()))
"""The directories of the library's two packages."""

_LIBRARY = tuple(f"{folder}{os.sep}" for folder in LIBRARY)

Span = tuple[int, int, str, int]
"""(first line, last line, the file that these lines were copied from, the first line there)."""

_origins: dict[str, Sequence[Span]] = {}
"""File with captured code -> the origins of its lines."""


def note_origins(file: str, spans: Sequence[Span]) -> None:
    """Note the origins of the lines in *file*, which simcluster has copied from other files.

    Locations in *file* are then reported as locations in those files.
    """
    _origins[file] = spans


def origin(file: str | None, line: int | None) -> tuple[str | None, int | None]:
    """Return the origin of *line* of *file* if that is a copy, else *file* and *line*.

    The origin is a line of a script, or of a numbered cell of a notebook.
    """
    for first, last, own, begin in _origins.get(file or "", ()):
        if line is not None and first <= line <= last:
            return _in_notebook(own), begin + line - first
    return file, line


def original(text: str) -> str:
    """Return *text* with each location in a copied file replaced by its origin."""

    def put(found: re.Match[str]) -> str:
        file, line = origin(found[1], int(found[3]))
        return f"{file}{found[2]}{line}"

    files = "|".join(map(re.escape, _origins))
    return re.sub(rf'({files})(:|", line )(\d+)', put, text) if files else text


def _in_notebook(file: str) -> str:
    """Return the name of a cell as IPython shows it, "Cell In[3]"; names of files are unchanged."""
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    named = getattr(getattr(shell, "compile", None), "format_code_name", lambda _: None)(file)
    return " ".join(named) if named is not None else file


def place(frame: FrameType | None) -> str:
    """Return "file:line (function)" of the innermost frame, from *frame* outwards, in user code or
    the library.

    If all frames are in Python, a package or a backend, return the location of *frame*.
    """
    here, caller = frame, frame
    while caller is not None:
        name = caller.f_code.co_filename
        if not name.startswith(("<", *_PYTHON)) and "/simcluster_backends/" not in name.replace("\\", "/"):
            return written(caller)
        caller = caller.f_back
    return "an unknown place" if here is None else written(here)


def own_place(frame: FrameType | None) -> str:
    """Return "file:line (function)" of the innermost frame in user code, from *frame* outwards, or
    "".
    """
    own = next(user_frames(frame), None)
    return "" if own is None else written(own)


def user_frames(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield the frames in user code, from *frame* outwards.

    Within a task, stop at its coroutine: the frames that run the event loop are not the
    algorithm's.
    """
    outermost = _outermost_of_task()
    while frame is not None:
        if is_own(frame.f_code.co_filename):
            yield frame
        frame = None if frame is outermost else frame.f_back


def _outermost_of_task() -> FrameType | None:
    """Return the frame of the current task's coroutine; None outside tasks."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no event loop runs in this thread
        return None
    return None if task is None else getattr(task.get_coro(), "cr_frame", None)


def is_own(file: str) -> bool:
    """Return whether *file* is user code."""
    return not file.startswith(("<", *_PYTHON, *_LIBRARY))


def is_library(file: str) -> bool:
    """Return whether *file* is in the package simcluster, or names code without a file."""
    return file.startswith(("<", _LIBRARY[0]))


def with_line(frame: FrameType) -> str:
    """Return the location of *frame*, and the source of its line if that is known."""
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno or 0).strip()
    return f"{written(frame)}: `{line[:MOST_LINE]}`" if line else written(frame)


def written(frame: FrameType) -> str:
    """Return the location of *frame* as "file:line (function)"."""
    return original(f"{frame.f_code.co_filename}:{frame.f_lineno} ({frame.f_code.co_name})")
