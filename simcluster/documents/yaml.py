"""Read YAML with positions: `document.problem(path, ...)` knows the file and line of every value."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simcluster.documents.yaml_build import Builder, Duplicate, KeyPath, Mark, dotted
from simcluster.errors import Problem, UsageError

MAX_BYTES = 16 * 2**20


MISSING = object()
"""Returned by `Document.get` for an absent path; None would be a value."""


@dataclass
class Document:
    """A YAML document: its *data* (dicts, lists, scalars) and the position of each part in *file*.

    The keys of mappings are strings as written, also for `1:` and `null:`. *keys* and *values* map
    the path of each part to its position; both are empty for data without a file. *overrides* maps
    the path of each value that was set later to its origin. *folder* is the base of relative file
    paths in data without a file, by default the working directory.
    """

    data: Any
    file: str | None = None
    keys: dict[KeyPath, Mark] = field(default_factory=dict)
    values: dict[KeyPath, Mark] = field(default_factory=dict)
    duplicates: list[Duplicate] = field(default_factory=list)
    overrides: dict[KeyPath, str] = field(default_factory=dict)
    folder: Path | None = None

    def problem(self, path: KeyPath, *, expected: str, found: str | None = None, at_key: bool = False) -> Problem:
        """Return the Problem of the value at *path*, or of its key.

        *found* defaults to the value; "" leaves it out of the message. The position of a missing
        value is that of its nearest parent.
        """
        if found is None:
            found = describe(self.get(path))
        origin = self.origin_of(path)
        if origin is not None:
            return Problem(f"{dotted(path)} (set by {origin})", found, expected)
        line, column = self.mark(path, at_key=at_key) or (None, None)
        return Problem(dotted(path) or "document", found, expected, self.file, line, column)

    def mark(self, path: KeyPath, *, at_key: bool = False) -> Mark | None:
        """Return the position of *path*, or of its nearest existing parent; None if unknown."""
        if path in self.values:
            return self.keys.get(path, self.values[path]) if at_key else self.values[path]
        for length in range(len(path) - 1, 0, -1):
            if path[:length] in self.values:
                # Return the position of the parent's key: a block mapping begins only at the line
                # of its first key.
                return self.keys.get(path[:length], self.values[path[:length]])
        return self.values.get(())

    def get(self, path: KeyPath) -> Any:
        """Return the value at *path*, or MISSING."""
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
        """Return the base of the relative file path at *path*.

        It is the directory of the document, or the working directory for a value from a command.
        """
        if self.origin_of(path) is not None:
            return Path.cwd()
        return Path(self.file).parent if self.file is not None else self.folder or Path.cwd()

    def override(self, path: KeyPath, value: Any, origin: str) -> None:
        """Set *value* at *path*, and create missing mappings above it.

        Problems of this value name *origin* instead of a line.

        Raise UsageError if *path* leads through a value that is neither a mapping nor a list with
        this index.
        """
        for length in range(1, len(path)):
            if self.get(path[:length]) in (MISSING, None):
                self._put(path[:length], {}, origin)
        self._put(path, value, origin)
        self.overrides[path] = origin

    def duplicate_problems(self) -> list[Problem]:
        """Return one Problem per duplicate key."""
        return [
            Problem(dotted(one.path), "a duplicate key", f"one (first on line {one.first[0]})", self.file, *one.mark)
            for one in self.duplicates
        ]

    def _put(self, path: KeyPath, value: Any, origin: str) -> None:
        place, part = self.get(path[:-1]), path[-1]
        fits = isinstance(place, dict) and isinstance(part, str)
        if not fits and not (isinstance(place, list) and isinstance(part, int) and 0 <= part < len(place)):
            above = dotted(path[:-1]) or "the document"
            raise UsageError(origin, f"{dotted(path)}, but {above} is {describe(place)}", "a mapping there")
        place[part] = value

    def origin_of(self, path: KeyPath) -> str | None:
        """Return the origin of the override at or above *path*, if there is one."""
        parents = (path[:length] for length in range(len(path), 0, -1))
        return next((self.overrides[parent] for parent in parents if parent in self.overrides), None)


def load(path: str | Path, *, keep_duplicates: bool = False) -> Document:
    """Read the YAML file at *path*.

    Raise UsageError if it cannot be read, or if its syntax or a key is invalid.

    With *keep_duplicates*, duplicate keys are left in `Document.duplicates` for the caller to
    report.
    """
    return loads(read_text(path), str(path), keep_duplicates=keep_duplicates)


def loads(text: str, file: str | None = None, *, keep_duplicates: bool = False) -> Document:
    """Read YAML *text*, like `load`; *file* is the name used in errors."""
    built = Builder(text, file)
    document = Document(built.data, file, built.keys, built.values, built.duplicates)
    if document.duplicates and not keep_duplicates:
        raise UsageError(document.duplicate_problems())
    return document


def parse_value(text: str) -> Any:
    """Return the value of *text* as in a file: `4` is an int, `1e-3` a float, `[a, b]` a list."""
    return loads(text).data


def read_text(path: str | Path, *, may_be_pipe: bool = True) -> str:
    """Return the UTF-8 text of a file of at most MAX_BYTES. Raise UsageError if it cannot be read."""
    path = Path(path)
    try:
        if not may_be_pipe and path.is_fifo():  # opening it could wait forever
            raise UsageError("file", "a pipe", "the path of a file", str(path))
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except IsADirectoryError:
        raise UsageError("file", "a folder", "the path of a file", str(path)) from None
    except OSError as error:
        raise UsageError("file", error.strerror or str(error), "one that can be read", str(path)) from None
    if len(content) > MAX_BYTES:
        raise UsageError("file", "a larger file", f"at most {MAX_BYTES} bytes", str(path))
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UsageError("text", "bytes that are not UTF-8", "UTF-8", str(path), line) from None


def describe(value: Any) -> str:
    """Return *value* in a few words, for an error message."""
    if value is MISSING or value is None:
        return "nothing"
    if isinstance(value, (dict, list)):
        kind = "mapping" if isinstance(value, dict) else "list"
        return f"a {kind} of {len(value)}" if value else f"an empty {kind}"
    if isinstance(value, bool):
        return "true" if value else "false"
    try:
        text = repr(value)
    except ValueError:  # Python refuses to print an integer of more than 4,300 digits
        return "a number of thousands of digits"
    return text if len(text) <= 80 else text[:77] + "..."
