"""The directory of a run's checkpoints: content by its digest, and one manifest per step that names it.

    checkpoints/step-00000100.json        complete: everything it names is there, and on the disk
    checkpoints/shards/<sha256>.safetensors   content shared by ranks or steps is there once

The manifest is renamed into place last, and only then is outdated content removed: at any interruption the last
complete checkpoint is there. A directory may come from elsewhere: no link in it is followed, and only files that a
store could have written are removed.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import warnings
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from simcluster.checkpoints.manifest import File, Manifest, decode_manifest, encode_manifest
from simcluster.errors import CheckpointError, CheckpointWarning
from simcluster.paths.inside import PARTIAL, listed, opened, put, read, remove_from, stage, sync, write_whole

SHARDS = "shards"
SUFFIX = ".safetensors"
_NAME = re.compile(r"step-\d{8,12}\.json")
_SHARD = re.compile(r"[0-9a-f]{64}\.safetensors")
_HALF = re.compile(rf"{re.escape(PARTIAL)}(step-\d{{8,12}}\.json|[0-9a-f]{{64}}\.safetensors)")
"""The names that a store writes; other files in its directory are not its own."""

MANIFEST_BYTES = 256 << 20
MANIFESTS = 10_000
"""Limits on what is read from a directory. They are large: generators and ledgers of many ranks are."""

Best = Literal["accuracy", "loss"]


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint with a complete manifest; `check` reads all of its content."""

    path: Path
    manifest: Manifest

    @property
    def step(self) -> int:
        return self.manifest.step

    @property
    def judged(self) -> dict[str, float]:
        """Loss and accuracy of rank 0's weights on held-out samples, if `best` asks for them."""
        return self.manifest.judged

    def read(self, file: File) -> bytes:
        """Return the content of *file*. Raises CheckpointError if it differs from what was written."""
        path = self.path.parent / SHARDS / f"{file.sha256}{SUFFIX}"
        try:
            content = _read(self.path.parent, SHARDS, path.name, most_bytes=file.size_bytes)
        except OSError as error:
            raise CheckpointError(str(path), error.strerror or str(error), "a readable file") from None
        if len(content) != file.size_bytes or hashlib.sha256(content).hexdigest() != file.sha256:
            raise CheckpointError(str(path), "other bytes", "the bytes of this digest")
        return content

    def check(self) -> None:
        """Raise CheckpointError unless every byte is as written."""
        for file in {file.sha256: file for file in _files(self.manifest)}.values():
            self.read(file)


def checkpoints(folder: Path) -> list[Checkpoint]:
    """Return the checkpoints in *folder* (a run's, or its `checkpoints`) by age; warn of invalid manifests."""
    inner = folder / "checkpoints"
    place = inner if inner.is_dir() or inner.is_symlink() else folder
    found = []
    try:
        names = _manifests(place)
    except OSError as error:
        raise CheckpointError(str(place), error.strerror or str(error), "a folder of checkpoints") from None
    if len(names) > MANIFESTS:
        raise CheckpointError(str(place), f"{len(names)} manifests", f"at most {MANIFESTS}")
    for name in names:
        path = place / name
        try:
            found.append(Checkpoint(path, decode_manifest(_read(place, name, most_bytes=MANIFEST_BYTES), str(path))))
        except (CheckpointError, OSError) as error:
            warnings.warn(f"passed over: {error}", CheckpointWarning, stacklevel=2)
    return sorted(found, key=lambda checkpoint: checkpoint.manifest.sequence)


def latest(
    folder: Path,
    step: int | None = None,
    *,
    below: int | None = None,
    check: Callable[[Manifest], None] = lambda _: None,
) -> Checkpoint:
    """Return the last valid checkpoint in *folder*; with *step*, that of this step; with *below*, of an earlier step.

    Those for which *check* raises CheckpointError are skipped, with a warning. Raises CheckpointError if none is left.
    """
    found = checkpoints(folder)
    for checkpoint in reversed(found):
        if (step is not None and checkpoint.step != step) or (below is not None and checkpoint.step >= below):
            continue
        try:
            check(checkpoint.manifest)
            checkpoint.check()
        except CheckpointError as error:
            warnings.warn(f"{checkpoint.path.name} is passed over: {error}", CheckpointWarning, stacklevel=2)
            continue
        return checkpoint
    if not found:
        expected = "a run with checkpoints, which `checkpoint: {every: N}` in its experiment keeps"
        raise CheckpointError(str(folder), "no checkpoints", expected)
    steps = ", ".join(str(checkpoint.step) for checkpoint in found)
    wanted = "a complete checkpoint" + (f" of step {step}" if step is not None else "")
    raise CheckpointError(str(folder), f"checkpoints of steps: {steps}", wanted)


class Store:
    """Writer of the checkpoints of *run* to *folder*; keeps the last *keep* of them and the *best*.

    Checkpoints of an earlier run in the same directory stay until one of this run is complete.
    """

    def __init__(self, folder: Path, run: str, *, keep: int = 3, best: Best | None = None) -> None:
        self._folder, self.run, self._keep, self._best = folder, run, keep, best
        self._place = folder.parent, folder.name
        self._sequence, self._opened = 0, False

    def put(self, content: bytes) -> File:
        """Write *content* unless it is there. Raises OSError."""
        self._open()
        file = File(hashlib.sha256(content).hexdigest(), len(content))
        name = f"{file.sha256}{SUFFIX}"
        with opened(*self._place, SHARDS) as shards:
            try:
                found = os.stat(name, dir_fd=shards, follow_symlinks=False)
            except FileNotFoundError:
                found = None
        if found is None or not stat.S_ISREG(found.st_mode) or found.st_size != file.size_bytes:
            write_whole(*self._place, SHARDS, name, content=content)
        return file

    def commit(self, manifest: Manifest, in_use: Container[str] = ()) -> Path:
        """Make *manifest*, whose files were put, the last checkpoint; remove those no longer kept.

        *in_use* are digests put for pending checkpoints. Raises OSError, with the directory unchanged.
        """
        self._open()
        manifest.run, manifest.sequence = self.run, self._sequence + 1
        path = self._folder / f"step-{manifest.step:08d}.json"
        with opened(*self._place, SHARDS) as shards:
            sync(shards)
        with opened(*self._place) as folder:
            stage(folder, path.name, encode_manifest(manifest))
            put(folder, path.name)
            self._sequence += 1
            sync(folder)
        self._rotate(in_use)
        return path

    def discard(self, in_use: Container[str] = ()) -> None:
        """Remove content that no checkpoint needs and that is not *in_use*."""
        if self._opened:
            self._sweep(in_use)

    def drop_others(self) -> None:
        """Remove the checkpoints of other runs, even if this run has none."""
        others = [checkpoint.path.name for checkpoint in self._known() if checkpoint.manifest.run != self.run]
        if others or listed(*self._place, SHARDS):
            with opened(*self._place) as folder:
                for name in others:
                    remove_from(folder, name)
            self._sweep(())

    def _open(self) -> None:
        """Make the directory, and remove what a killed writer left half done."""
        if self._opened:
            return
        self._folder.parent.mkdir(parents=True, exist_ok=True)
        with opened(*self._place, SHARDS, make=True):
            pass
        with opened(*self._place) as folder:
            sync(folder)
        self._sequence = max((checkpoint.manifest.sequence for checkpoint in self._known()), default=0)
        self._opened = True
        self._sweep(())

    def _known(self) -> list[Checkpoint]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CheckpointWarning)
            return checkpoints(self._folder)

    def _rotate(self, in_use: Container[str]) -> None:
        ours = [checkpoint for checkpoint in self._known() if checkpoint.manifest.run == self.run]
        kept = {checkpoint.path for checkpoint in ours[-self._keep :]}
        judged = [checkpoint for checkpoint in ours if self._best in checkpoint.judged]
        if self._best is not None and judged:
            sign = 1 if self._best == "accuracy" else -1
            kept.add(max(judged, key=lambda one: (sign * one.judged[str(self._best)], one.step)).path)
        with opened(*self._place) as folder:
            for name in _manifests(self._folder):
                if self._folder / name not in kept:
                    remove_from(folder, name)
        self._sweep(in_use)

    def _sweep(self, in_use: Container[str]) -> None:
        """Remove files that no manifest names. If a manifest cannot be read, keep all: a person may want them."""
        readable = len(_manifests(self._folder)) == len(known := self._known())
        needed = {file.sha256 for checkpoint in known for file in _files(checkpoint.manifest)}
        with opened(*self._place, SHARDS) as shards:
            for name in sorted(os.listdir(shards)):
                digest = name.removesuffix(SUFFIX)
                unused = readable and _SHARD.fullmatch(name) and digest not in needed and digest not in in_use
                if unused or _HALF.fullmatch(name):
                    remove_from(shards, name)
        with opened(*self._place) as folder:
            for name in filter(_HALF.fullmatch, sorted(os.listdir(folder))):
                remove_from(folder, name)


def _manifests(folder: Path) -> list[str]:
    """Return the names of the manifests in *folder*. Raises OSError."""
    return [name for name in listed(folder.parent, folder.name) if _NAME.fullmatch(name)]


def _read(folder: Path, *names: str, most_bytes: int) -> bytes:
    return read(folder.parent, folder.name, *names, most_bytes=most_bytes)


def _files(manifest: Manifest) -> Iterator[File]:
    for entry in manifest.ranks:
        yield from entry.files.values()
