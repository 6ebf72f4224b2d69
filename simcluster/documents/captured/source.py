"""The source of own code that has no file yet: its files, their place below a run, and their content until then."""

from __future__ import annotations

import hashlib
import json
import linecache
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simcluster.errors import Problem, UsageError
from simcluster.paths.inside import opened, read, write_whole
from simcluster.process.places import Span, note_origins

if TYPE_CHECKING:
    from torch import Tensor

FOLDER = "source"
"""In a run's directory: one directory per captured source, named by the digest of its files."""

TENSORS = "tensors.safetensors"
MOST_TENSOR_BYTES = 256 << 20

WRITE = "a function that makes it: def make(): return Workload(...)"

_DIGITS = 16

_unwritten: dict[Path, bytes] = {}
"""Files of sources that were read for a run and not written yet."""


@dataclass(frozen=True)
class SourceModule:
    """A module that defines the function *name*: *main* is its file among *files*, contents by relative path.

    *settings* are those that the function was given with, as by `functools.partial`. *origins* says where the lines of
    *main* are from: see `simcluster.process.places.note_origins`. *refused* is why no other process can have it.
    """

    name: str
    main: str
    files: Mapping[str, bytes] = field(repr=False)
    settings: Mapping[str, Any] = field(default_factory=dict)
    origins: Sequence[Span] = field(default=(), repr=False, compare=False)
    refused: UsageError | None = field(default=None, repr=False, compare=False)

    @cached_property
    def digest(self) -> str:
        return _digest(self.files)

    @property
    def label(self) -> str:
        return f"{self.main}:{self.name}"

    @property
    def block(self) -> dict[str, Any]:
        """The experiment's block that names this source."""
        return {"path": self, **self.settings}

    def __deepcopy__(self, memo: object) -> SourceModule:
        return self

    def held_at(self, folder: Path) -> str:
        """Return "file.py:function" of this source below *folder*; until written, the files are read from memory."""
        place = folder.resolve() / FOLDER / self.digest
        note_origins(str(place / self.main), self.origins)
        for name, content in self.files.items():
            if not (place / name).is_file() or (place / name).read_bytes() != content:
                _unwritten[place / name] = content
            if name.endswith(".py"):  # for tracebacks
                lines = content.decode().splitlines(keepends=True)
                linecache.cache[str(place / name)] = (len(content), None, lines, str(place / name))
        return f"{place / self.main}:{self.name}"


def content_of(path: Path) -> bytes:
    """Return the content of the file *path*, written or not."""
    return _unwritten[path] if path in _unwritten else path.read_bytes()


def is_unwritten(path: Path) -> bool:
    return path in _unwritten


def write_sources(references: Iterable[str]) -> None:
    """Write the files of those *references*, each "file.py:function", that are still in memory."""
    for reference in references:
        path = Path(reference.rpartition(":")[0])
        if path not in _unwritten:
            continue
        place = path.parent
        for file in [file for file in _unwritten if file.is_relative_to(place)]:
            names = (FOLDER, place.name, *file.relative_to(place).parts)
            with opened(place.parent.parent, *names[:-1], make=True):
                pass
            write_whole(place.parent.parent, *names, content=_unwritten.pop(file))


def copy_sources(references: Iterable[str], folder: Path) -> None:
    """Write the files of those *references* that are captured sources of another folder below *folder* as well."""
    for reference in references:
        path = Path(reference.rpartition(":")[0])
        place = path.parent
        for file in [] if path.is_relative_to(folder.resolve()) else files_with(path):
            names = (FOLDER, place.name, *file.relative_to(place).parts)
            with opened(folder, *names[:-1], make=True):
                pass
            write_whole(folder, *names, content=file.read_bytes())


def is_captured(path: Path) -> bool:
    """Return whether *path* is the file of a captured source, which its directory's name identifies."""
    place = path.parent
    return place.parent.name == FOLDER and len(place.name) == _DIGITS and not set(place.name) - set("0123456789abcdef")


def found_in(folder: Path, reference: str) -> str:
    """Return *reference*, or where it is below *folder* if its captured source moved there with its run, or a copy."""
    file, _, name = reference.rpartition(":")
    moved = folder.absolute().joinpath(*Path(file).parts[-3:])
    return f"{moved}:{name}" if not is_unwritten(Path(file)) and files_with(moved) else reference


def placeless(reference: str) -> str:
    """Return *reference*, without the place of its run if it names a captured source."""
    file, _, name = reference.rpartition(":")
    return f"{'/'.join(Path(file).parts[-3:])}:{name}" if is_captured(Path(file)) else reference


def placeless_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return *config* with captured sources wherever the run's folder is."""
    return {
        key: block | {"path": placeless(block["path"])}
        if isinstance(block, dict) and isinstance(block.get("path"), str)
        else block
        for key, block in config.items()
    }


def files_with(path: Path) -> list[Path]:
    """Return all files of the captured source that *path* belongs to; none if it belongs to no such source, or if there
    is a link.
    """
    place = path.parent
    if not is_captured(path):
        return []
    try:
        with opened(place.parent.parent, FOLDER, place.name):
            pass
    except OSError:
        return []
    inside = list(place.rglob("*"))
    if any(file.is_symlink() for file in inside):
        return []
    files = sorted(file for file in inside if file.suffix in (".py", ".safetensors") and _is_plain(file))
    contents = {file.relative_to(place).as_posix(): file.read_bytes() for file in files}
    return files if _digest(contents) == place.name else []


def _is_plain(file: Path) -> bool:
    return file.is_file() and file.stat().st_size <= 2 * MOST_TENSOR_BYTES


def stored(file: str) -> dict[str, Tensor]:
    """Return the tensors that were captured with the source in *file*, by name."""
    import safetensors.torch

    place = Path(file).parent
    unwritten = _unwritten.get(place / TENSORS)
    content = read(place, TENSORS, most_bytes=2 * MOST_TENSOR_BYTES) if unwritten is None else unwritten
    return safetensors.torch.load(content)


def held(value: Any, what: str, refused: UsageError) -> SourceModule:
    """Return the source of a function called *what* that returns *value* in this process, and in another raises the
    reason *refused*.
    """
    key = next((number for number, one in enumerate(_held) if one is value), len(_held))
    _held[key:] = _held[key:] or [value]
    text = "from simcluster.documents.captured.source import taken\n\n\n"
    text += f"def {what}():\n    return taken({key}, {str(refused)!r})\n"
    return SourceModule(what, f"{what}.py", {f"{what}.py": text.encode()}, refused=refused)


_held: list[Any] = []


def taken(number: int, reason: str) -> Any:
    """Return the object of that *number* that this process holds. Raise UsageError with the *reason* if it has none."""
    if number >= len(_held):
        raise UsageError(Problem("workload", f"an object of the process that ran it ({reason})", WRITE))
    return _held[number]


def _digest(files: Mapping[str, bytes]) -> str:
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    return hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()[:_DIGITS]
