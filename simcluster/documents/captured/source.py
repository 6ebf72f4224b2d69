"""Captured source: its files below a run's directory, and their content until they are written."""

from __future__ import annotations

import hashlib
import json
import linecache
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simcluster.errors import UsageError
from simcluster.paths.inside import opened, read, write_whole
from simcluster.process.own_frames import Span, note_origins

if TYPE_CHECKING:
    from torch import Tensor

FOLDER = "source"
"""The directory of captured sources in a run's directory.

Each source has its own directory there, which is named by the digest of its files.
"""

TENSORS = "tensors.safetensors"
MOST_TENSOR_BYTES = 256 << 20

WRITE = "a function that makes it: def make(): return Workload(...)"

_DIGITS = 16

_unwritten: dict[Path, bytes] = {}
"""Path -> content of each file of a captured source that has not been written yet."""


@dataclass(frozen=True)
class SourceModule:
    """A captured module that defines the function *name* in its file *main*.

    *files* maps the relative path of *main* and of each module that it imports to the content.
    *settings* are the keywords that a `functools.partial` gave the function. *origins* are the
    places that the lines of *main* come from: see `simcluster.process.own_frames.note_origins`.
    *refused*, if set, is the reason why no other process can run the function.
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
        """The block of an experiment that refers to this source."""
        return {"path": self, **self.settings}

    def __deepcopy__(self, memo: object) -> SourceModule:
        return self

    def held_at(self, folder: Path) -> str:
        """Return "file.py:function" of this source below *folder*.

        Until the files are written there, they are read from memory.
        """
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
    """Return the content of the file *path*, from memory if it is not written yet."""
    return _unwritten[path] if path in _unwritten else path.read_bytes()


def is_unwritten(path: Path) -> bool:
    return path in _unwritten


def write_sources(references: Iterable[str]) -> None:
    """Write all files in memory that belong to *references*, each "file.py:function"."""
    for reference in references:
        path = Path(reference.rpartition(":")[0])
        if path not in _unwritten:
            continue
        for file in [file for file in _unwritten if file.is_relative_to(path.parent)]:
            _write(path.parents[2], path.parent, file, _unwritten.pop(file))


def copy_sources(references: Iterable[str], folder: Path) -> None:
    """Copy the captured sources of *references* that are in another run's directory to *folder*."""
    for reference in references:
        path = Path(reference.rpartition(":")[0])
        for file in [] if path.is_relative_to(folder.resolve()) else files_with(path):
            _write(folder, path.parent, file, file.read_bytes())


def _write(folder: Path, place: Path, file: Path, content: bytes) -> None:
    """Write *content* to the file of the source below the run's *folder*.

    Its path in the directory of the source is that of *file* below *place*.
    """
    names = (FOLDER, place.name, *file.relative_to(place).parts)
    with opened(folder, *names[:-1], make=True):
        pass
    write_whole(folder, *names, content=content)


def is_captured(path: Path) -> bool:
    """Return whether *path* is the file of a captured source, judging by the directory's name."""
    place = path.parent
    return place.parent.name == FOLDER and len(place.name) == _DIGITS and not set(place.name) - set("0123456789abcdef")


def found_in(folder: Path, reference: str) -> str:
    """Return *reference*, or its new place if *folder* has the captured source.

    The source is there if the run's directory was moved or copied.
    """
    file, _, name = reference.rpartition(":")
    moved = folder.absolute().joinpath(*Path(file).parts[-3:])
    return f"{moved}:{name}" if not is_unwritten(Path(file)) and files_with(moved) else reference


def placeless(reference: str) -> str:
    """Return *reference*, without the path of the run's directory if it names a captured source."""
    file, _, name = reference.rpartition(":")
    return f"{'/'.join(Path(file).parts[-3:])}:{name}" if is_captured(Path(file)) else reference


def placeless_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return *config* with `placeless` applied to each reference to a captured source."""
    return {
        key: block | {"path": placeless(block["path"])}
        if isinstance(block, dict) and isinstance(block.get("path"), str)
        else block
        for key, block in config.items()
    }


def files_with(path: Path) -> list[Path]:
    """Return all files of the captured source that *path* belongs to.

    Return [] if *path* belongs to none, the files do not match their digest, or one is a link.
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
    wanted = sorted(file for file in inside if file.suffix in (".py", ".safetensors") and file.is_file())
    files = [file for file in wanted if file.stat().st_size <= 2 * MOST_TENSOR_BYTES]
    contents = {file.relative_to(place).as_posix(): file.read_bytes() for file in files}
    return files if _digest(contents) == place.name else []


def stored(file: str) -> dict[str, Tensor]:
    """Return name -> tensor for the tensors that were captured with the source in *file*."""
    import safetensors.torch

    place = Path(file).parent
    unwritten = _unwritten.get(place / TENSORS)
    content = read(place, TENSORS, most_bytes=2 * MOST_TENSOR_BYTES) if unwritten is None else unwritten
    return safetensors.torch.load(content)


def held(value: Any, what: str, refused: UsageError) -> SourceModule:
    """Return the source of a function called *what* that returns *value* itself.

    The function works only in this process. In another it raises UsageError with the reason
    *refused*.
    """
    key = next((number for number, one in enumerate(_held) if one is value), len(_held))
    _held[key:] = _held[key:] or [value]
    text = "from simcluster.documents.captured.source import taken\n\n\n"
    text += f"def {what}():\n    return taken({key}, {str(refused)!r})\n"
    return SourceModule(what, f"{what}.py", {f"{what}.py": text.encode()}, refused=refused)


_held: list[Any] = []


def taken(number: int, reason: str) -> Any:
    """Return object *number* of those that `held` keeps in this process.

    Raise UsageError with *reason* in a process that does not have the object.
    """
    if number >= len(_held):
        raise UsageError("workload", f"an object of the process that ran it ({reason})", WRITE)
    return _held[number]


def _digest(files: Mapping[str, bytes]) -> str:
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    return hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()[:_DIGITS]
