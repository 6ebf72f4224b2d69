"""Reads YAML so that everything in it can be pointed at: `document.problem(path, ...)` has file and line."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from simcluster.documents.yaml_build import MAX_DEPTH, MAX_VALUES, Duplicate, KeyPath, Mark, build, dotted
from simcluster.errors import Problem, UsageError

__all__ = [
    "MAX_BYTES",
    "MAX_DEPTH",
    "MAX_VALUES",
    "MISSING",
    "Document",
    "Duplicate",
    "KeyPath",
    "describe",
    "dotted",
    "load",
    "loads",
    "parse_value",
    "read_text",
]

MAX_BYTES = 16 * 2**20


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = _Missing()
"""What `Document.get` returns for what is not there; None would be a value."""


@dataclass
class Document:
    """*data* (dicts with text keys, lists, scalars) and where each part of it stands in *file*.

    A mapping's keys are the text that was written, also for `1:` and `null:`. *keys* and *values* are marks
    by path, both empty for data that came from no file. *overrides* says of each path set later who set it.
    *folder* is where relative paths in data without a file start, by default where the program runs.
    """

    data: Any
    file: str | None = None
    keys: dict[KeyPath, Mark] = field(default_factory=dict)
    values: dict[KeyPath, Mark] = field(default_factory=dict)
    duplicates: list[Duplicate] = field(default_factory=list)
    overrides: dict[KeyPath, str] = field(default_factory=dict)
    folder: Path | None = None

    def problem(self, path: KeyPath, *, expected: str, found: str | None = None, at_key: bool = False) -> Problem:
        """The Problem of the value at *path*, or of its key; of a missing one, at the nearest part above it.

        *found* is what stands there unless given; "" leaves it out of the message.
        """
        if found is None:
            found = describe(self.get(path))
        origin = self._override_of(path)
        if origin is not None:
            return Problem(f"{dotted(path)} (set by {origin})", found, expected)
        line, column = self.mark(path, at_key=at_key) or (None, None)
        return Problem(dotted(path) or "document", found, expected, self.file, line, column)

    def mark(self, path: KeyPath, *, at_key: bool = False) -> Mark | None:
        """Where *path* stands, or the nearest part above it that is there; None if nothing is known."""
        if path in self.values:
            return self.keys.get(path, self.values[path]) if at_key else self.values[path]
        for length in range(len(path) - 1, 0, -1):
            if path[:length] in self.values:
                # The key of a block mapping says more than its first line, which is another key's.
                return self.keys.get(path[:length], self.values[path[:length]])
        return self.values.get(())

    def get(self, path: KeyPath) -> Any:
        """The value at *path*, or MISSING."""
        value = self.data
        for part in path:
            if isinstance(value, dict):
                value = value.get(part, MISSING)
            elif isinstance(value, list) and isinstance(part, int) and 0 <= part < len(value):
                value = value[part]
            else:
                return MISSING
        return value

    def folder_of(self, path: KeyPath) -> Path:
        """Where a relative path that stands at *path* starts: beside the file, or where a command was given."""
        if self._override_of(path) is not None:
            return Path.cwd()
        return Path(self.file).parent if self.file is not None else self.folder or Path.cwd()

    def override(self, path: KeyPath, value: Any, origin: str) -> None:
        """Puts *value* at *path*, making mappings on the way. Problems there name *origin* instead of a line.

        Raises UsageError where a part of *path* is neither a mapping nor an index of a list.
        """
        for length in range(1, len(path)):
            if self.get(path[:length]) in (MISSING, None):
                self._put(path[:length], {}, origin)
        self._put(path, value, origin)
        self.overrides[path] = origin

    def duplicate_problems(self) -> list[Problem]:
        """One Problem for every key that stands twice."""
        return [
            Problem(
                dotted(duplicate.path),
                "the key a second time",
                f"it once (first on line {duplicate.first[0]})",
                self.file,
                *duplicate.mark,
            )
            for duplicate in self.duplicates
        ]

    def _put(self, path: KeyPath, value: Any, origin: str) -> None:
        place, part = self.get(path[:-1]), path[-1]
        fits = isinstance(place, dict) and isinstance(part, str)
        if not fits and not (isinstance(place, list) and isinstance(part, int) and 0 <= part < len(place)):
            above = dotted(path[:-1]) or "the document"
            raise UsageError(Problem(origin, f"{dotted(path)}, but {above} is {describe(place)}", "a mapping there"))
        place[part] = value

    def _override_of(self, path: KeyPath) -> str | None:
        for length in range(len(path), 0, -1):
            if path[:length] in self.overrides:
                return self.overrides[path[:length]]
        return None


def load(path: str | Path, *, keep_duplicates: bool = False) -> Document:
    """Reads the YAML file at *path*. Raises UsageError for a file, a syntax or a key that is wrong.

    With *keep_duplicates*, keys that stand twice are left in `Document.duplicates` for the caller to report.
    """
    return loads(read_text(path), str(path), keep_duplicates=keep_duplicates)


def loads(text: str, file: str | None = None, *, keep_duplicates: bool = False) -> Document:
    """Reads YAML *text*, as `load` does; *file* is the name used in errors."""
    parsed = build(text, file)
    document = Document(parsed.data, file, parsed.keys, parsed.values, parsed.duplicates)
    if document.duplicates and not keep_duplicates:
        raise UsageError(document.duplicate_problems())
    return document


def parse_value(text: str) -> Any:
    """What *text* would mean as a value in a file: `4` is an int, `1e-3` a float, `[a, b]` a list."""
    return loads(text).data


def read_text(path: str | Path) -> str:
    """The UTF-8 text of a file of at most MAX_BYTES. Raises UsageError if it cannot be had."""
    path = Path(path)
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(Problem("file", error.strerror or str(error), "one that can be read", str(path))) from None
    if len(content) > MAX_BYTES:
        raise UsageError(Problem("file", "a larger one", f"at most {MAX_BYTES} bytes", str(path)))
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UsageError(Problem("text", "bytes that are not UTF-8", "UTF-8", str(path), line)) from None


def describe(value: Any) -> str:
    """*value* in the few words of an error message."""
    if value is MISSING or value is None:
        return "nothing"
    if isinstance(value, (dict, list)):
        kind = "mapping" if isinstance(value, dict) else "list"
        return f"a {kind} of {len(value)}" if value else f"an empty {kind}"
    if isinstance(value, bool):
        return "true" if value else "false"
    try:
        text = repr(value)
    except ValueError:  # Python writes no whole number of more than 4,300 digits
        return "a number of thousands of digits"
    return text if len(text) <= 80 else text[:77] + "..."
