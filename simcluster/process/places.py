"""Where user code is: file, line and function of a frame that is neither Python's, nor a package's, nor ours."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path
from types import FrameType

_PYTHON = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_PACKAGE = Path(__file__).parent.parent
_LIBRARY = tuple(str(folder) + os.sep for folder in (_PACKAGE, _PACKAGE.parent / "simcluster_backends"))


def place(frame: FrameType | None) -> str:
    """Return "file:line (function)" of the innermost frame, from *frame* outwards, in user code or the library; of
    *frame* if all are Python's, a package's or a backend's.
    """
    here, caller = frame, frame
    while caller is not None:
        name = caller.f_code.co_filename
        if not name.startswith(("<", *_PYTHON)) and "/simcluster_backends/" not in name.replace("\\", "/"):
            return written(caller)
        caller = caller.f_back
    return "an unknown place" if here is None else written(here)


def own_place(frame: FrameType | None) -> str:
    """Return "file:line (function)" of the innermost frame in user code; "" if there is none."""
    own = own_frame(frame)
    return "" if own is None else written(own)


def own_frame(frame: FrameType | None) -> FrameType | None:
    """Return the innermost frame in user code, from *frame* outwards."""
    while frame is not None and not is_own(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def is_own(file: str) -> bool:
    """Return whether *file* is user code."""
    return not file.startswith(("<", *_PYTHON, *_LIBRARY))


def is_library(file: str) -> bool:
    """Return whether *file* is the library's, a backend's excepted, or code without a file, such as a cell's."""
    return file.startswith(("<", _LIBRARY[0]))


def written(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno} ({frame.f_code.co_name})"
