"""Limits on callers: they can name only files below one folder, and get answers of a limited size."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simcluster.catalogue import names
from simcluster.errors import Problem, UsageError, raise_all
from simcluster.lab.ui.run_children import FOLDER
from simcluster.paths.last_run import last_run
from simcluster.spelling import nearest

MOST_CHARACTERS = 20_000
"""Limit on the characters of an answer, written as JSON."""

CUTS = ((200, 4000), (50, 1000), (20, 300), (8, 100), (3, 60))
"""Limits for a long answer, tried in order: (entries per list or mapping, characters per string)."""

MOST_SETS = 50
MOST_VALUE = 2000
"""Limits on the number of overrides in a request, and on the characters of each value."""

_KEY = re.compile(r"[A-Za-z_][\w-]*(\.[\w-]+)*")


def bounded(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return *answer* as JSON-compatible values, shortened to at most MOST_CHARACTERS.

    The key "truncated" says whether anything was left out.
    """
    whole = json.loads(json.dumps(answer, default=str))
    if _length(whole) <= MOST_CHARACTERS:
        return {**whole, "truncated": False}
    for entries, characters in CUTS:
        short = {key: _cut(value, entries, characters) for key, value in whole.items()}
        if _length(short) <= MOST_CHARACTERS:
            return {**short, "truncated": True}
    return {"truncated": True, "keys": sorted(whole)[:100]}


def _length(value: Any) -> int:
    return len(json.dumps(value))


def _cut(value: Any, entries: int, characters: int) -> Any:
    if isinstance(value, str):
        return value[:characters]
    if isinstance(value, list):
        return [_cut(part, entries, characters) for part in value[:entries]]
    if isinstance(value, dict):
        return {key: _cut(part, entries, characters) for key, part in [*value.items()][:entries]}
    return value


class Root:
    """The root folder: a caller can name only files below it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()

    def run(self, handle: str) -> Path:
        """Return the folder of the run with *handle*. Raise UsageError if there is none."""
        folder = last_run(self.folder / handle) if FOLDER.fullmatch(handle) else None
        if folder is None or folder.is_symlink() or not folder.is_dir():
            raise UsageError("handle", repr(handle[:100]), "a handle from submit that has a folder")
        return folder

    def named(self, key: str, given: str, kind: str) -> str:
        """Return *given* if it is a known name of *kind*, else the path of a file below the root.

        Raise UsageError, naming *key*, if *given* is neither.
        """
        if given in names(kind):
            return given
        file, colon, function = given.rpartition(":")
        if colon and function.isidentifier():
            return f"{self._file(key, file, kind)}:{function}"
        return str(self._file(key, given, kind))

    def _file(self, key: str, given: str, kind: str) -> Path:
        path = Path(os.path.realpath(self.folder / given))
        if "\0" in given or not path.is_relative_to(self.folder) or not path.is_file():
            expected = f"a file below {self.folder}, or a name: {nearest(given[:100], names(kind))}"
            raise UsageError(key, repr(given[:100]), expected)
        return path

    def sets(self, given: Mapping[str, Any]) -> list[str]:
        """Return *given* as "key=value" strings.

        Raise UsageError, with all problems, for invalid keys, paths outside the root, and too many
        or too long values.
        """
        problems = []
        if len(given) > MOST_SETS:
            problems.append(Problem("sets", f"{len(given)} keys", f"at most {MOST_SETS}"))
        for key, value in given.items():
            if _KEY.fullmatch(key) is None:
                problems.append(Problem("sets", repr(key[:100]), "keys such as algorithm.interval"))
            if len(json.dumps(value, default=str)) > MOST_VALUE:
                problems.append(Problem(f"sets {key[:100]}", "a long value", f"at most {MOST_VALUE} characters"))
            problems += [
                Problem(f"sets {key[:100]}", repr(text[:100]), f"no path outside {self.folder}")
                for text in _texts(value)
                if self._leads_out(text)
            ]
        raise_all(problems)
        return [f"{key}={json.dumps(value)}" for key, value in given.items()]

    def _leads_out(self, text: str) -> bool:
        """Return whether *text*, read as a path or as file.py:function, leads outside the root."""
        path = Path(os.path.realpath(self.folder / text.rpartition(":")[0])) if ".py:" in text else None
        whole = Path(os.path.realpath(self.folder / text)) if "\0" not in text else Path("/")
        outside = [one for one in (path, whole) if one is not None and not one.is_relative_to(self.folder)]
        return bool(outside) or text.startswith("~")


def _texts(value: Any) -> list[str]:
    """Return every string in *value*, including keys."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return [text for pair in value.items() for part in pair for text in _texts(part)]
    return [text for part in value for text in _texts(part)] if isinstance(value, (list, tuple)) else []
