"""Find the frames of a traceback that are in user code, to show them when a node fails."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path, PurePath

from simcluster.process.own_frames import original

MOST_FRAMES = 8

_BEGIN = "Traceback (most recent call last):"
_FRAME = re.compile(r'\s*File "(?P<file>[^"]*)", line \d+, in ')
_PYTHON = re.compile(r"python\d?(\.\d+)?", re.IGNORECASE)
_PACKAGE = Path(__file__).parents[1]


def own_frames(details: str) -> list[str]:
    """Return the user's frames in the last traceback of *details*, each as place and source."""
    lines = details.splitlines()
    begins = [number for number, line in enumerate(lines) if line.strip(" |") == _BEGIN]
    found: list[list[str]] = []
    is_own = False
    for line in lines[begins[-1] + 1 :] if begins else ():
        if (frame := _FRAME.match(line)) is not None:
            is_own = is_users(frame["file"])
            if is_own:
                found.append([])
        elif not line.startswith("    "):  # the frames are indented; the exception after them is not
            break
        if is_own:
            found[-1].append(line)
    return [original("\n".join(frame)) for frame in found[-MOST_FRAMES:]]


def is_users(file: str) -> bool:
    """Return whether *file*, a path on any machine, is the user's: not Python's, a package's or
    simcluster's.
    """
    parts = PurePath(file.replace("\\", "/")).parts
    if file.startswith("<") or not {"site-packages", "dist-packages", "simcluster_backends"}.isdisjoint(parts):
        return False
    if any(one == "lib" and _PYTHON.fullmatch(two) for one, two in pairwise(parts)):
        return False
    ours = [number for number, part in enumerate(parts) if part == "simcluster"]
    return not any(parts[number + 1 :] and _PACKAGE.joinpath(*parts[number + 1 :]).is_file() for number in ours)
