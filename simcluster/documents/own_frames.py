"""The lines of a traceback that are the user's own: what to show of a failed node."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path, PurePath

from simcluster.process.places import original

MOST_FRAMES = 8

_BEGIN = "Traceback (most recent call last):"
_FRAME = re.compile(r'\s*File "(?P<file>[^"]*)", line \d+, in ')
_PYTHON = re.compile(r"python\d?(\.\d+)?", re.IGNORECASE)
_PACKAGE = Path(__file__).parents[1]


def own_frames(details: str) -> list[str]:
    """Return the user's frames in the last traceback of *details*, each with its file, line and source line."""
    lines = details.splitlines()
    begins = [number for number, line in enumerate(lines) if line.strip(" |") == _BEGIN]
    found: list[list[str]] = []
    is_own = False
    for line in lines[begins[-1] + 1 :] if begins else ():
        if (frame := _FRAME.match(line)) is not None:
            is_own = is_users(frame["file"])
            if is_own:
                found.append([])
        elif not line.startswith("    "):  # frames are indented, the exception is not
            break
        if is_own:
            found[-1].append(line)
    return [original("\n".join(frame)) for frame in found[-MOST_FRAMES:]]


def is_users(file: str) -> bool:
    """Return whether *file*, on any machine, is neither Python's, nor an installed package's, nor ours."""
    parts = PurePath(file.replace("\\", "/")).parts
    if file.startswith("<") or not {"site-packages", "dist-packages", "simcluster_backends"}.isdisjoint(parts):
        return False
    if any(one == "lib" and _PYTHON.fullmatch(two) for one, two in pairwise(parts)):
        return False
    ours = [number for number, part in enumerate(parts) if part == "simcluster"]
    return not any(parts[number + 1 :] and _PACKAGE.joinpath(*parts[number + 1 :]).is_file() for number in ours)
