"""Limits of what a caller may name and of what it gets: files below one folder, answers of a bounded size."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from simcluster.catalogue import names
from simcluster.errors import Problem, UsageError, nearest, raise_all
from simcluster.lab.ui.children import FOLDER
from simcluster.paths.last_run import last_run

MOST_CHARACTERS: Final = 20_000
"""Limit on an answer, as JSON."""

CUTS: Final = ((200, 4000), (50, 1000), (20, 300), (8, 100), (3, 60))
"""The entries of a list or mapping and the characters of a text that are kept: the first that is short enough."""

MOST_SETS: Final = 50
MOST_VALUE: Final = 2000
"""Limits on the overrides of a request, and on the characters of one."""

_KEY: Final = re.compile(r"[A-Za-z_][\w-]*(\.[\w-]+)*")


def bounded(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return *answer* as JSON can hold it, cut to MOST_CHARACTERS; `truncated` says whether it was."""
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
    """The folder below which everything is that a caller can name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()

    def run(self, handle: str) -> Path:
        """Return the folder of the run *handle*. Raise UsageError if there is none."""
        folder = last_run(self.folder / handle) if FOLDER.fullmatch(handle) else None
        if folder is None or folder.is_symlink() or not folder.is_dir():
            raise UsageError(Problem("handle", repr(handle[:100]), "a handle from submit that has a folder"))
        return folder

    def named(self, key: str, given: str, kind: str) -> str:
        """Return *given*, a name of the catalogue's *kind*, or the path of a file below the root."""
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
            raise UsageError(Problem(key, repr(given[:100]), expected))
        return path

    def sets(self, given: Mapping[str, Any]) -> list[str]:
        """Return *given* as "key=value" texts. Raise UsageError with all that name a file outside, or are no keys."""
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
        path = Path(os.path.realpath(self.folder / text.rpartition(":")[0])) if ".py:" in text else None
        whole = Path(os.path.realpath(self.folder / text)) if "\0" not in text else Path("/")
        outside = [one for one in (path, whole) if one is not None and not one.is_relative_to(self.folder)]
        return bool(outside) or text.startswith("~")


def _texts(value: Any) -> list[str]:
    """Return every text inside *value*."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return [text for pair in value.items() for part in pair for text in _texts(part)]
    return [text for part in value for text in _texts(part)] if isinstance(value, (list, tuple)) else []
