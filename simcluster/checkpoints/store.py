"""The directory of a run's checkpoints: content files named by their digests, and one manifest per
step.

    checkpoints/step-00000100.json        its existence shows that the checkpoint is complete
    checkpoints/shards/<sha256>.safetensors   content that ranks or steps share is stored once

The manifest is renamed into place last, and only then is outdated content removed, so the last
complete checkpoint survives any interruption. Since a directory may come from an untrusted source,
links in it are not followed, and only files that a store could have written are removed.
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
from simcluster.paths.inside import PARTIAL, listed, opened, put, read, remove_from, stage, write_whole

SHARDS = "shards"
SUFFIX = ".safetensors"
_NAME = re.compile(r"step-\d{8,12}\.json")
_SHARD = re.compile(r"[0-9a-f]{64}\.safetensors")
_HALF = re.compile(rf"{re.escape(PARTIAL)}(step-\d{{8,12}}\.json|[0-9a-f]{{64}}\.safetensors)")
"""The names of the files that a store writes. It leaves all other files in its directory alone."""

MANIFEST_BYTES = 256 << 20
MANIFESTS = 10_000
"""Limits on the size and the number of the manifests that are read from a directory.

They are large because a manifest holds the generators and ledgers of all ranks.
"""

Best = Literal["accuracy", "loss"]


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint with a complete manifest. Its content may be damaged: see `check`."""

    path: Path
    manifest: Manifest

    @property
    def step(self) -> int:
        return self.manifest.step

    @property
    def judged(self) -> dict[str, float]:
        """The loss and accuracy of rank 0's weights on held-out samples; empty if the run did not
        ask for them.
        """
        return self.manifest.judged

    def read(self, file: File) -> bytes:
        """Return the content of *file*. Raise CheckpointError if it cannot be read or does not
        match the digest.
        """
        path = self.path.parent / SHARDS / f"{file.sha256}{SUFFIX}"
        try:
            content = _read(self.path.parent, SHARDS, path.name, most_bytes=file.size_bytes)
        except OSError as error:
            raise CheckpointError(str(path), error.strerror or str(error), "a readable file") from None
        if len(content) != file.size_bytes or hashlib.sha256(content).hexdigest() != file.sha256:
            raise CheckpointError(str(path), "other bytes", "the bytes of this digest")
        return content

    def check(self) -> None:
        """Raise CheckpointError unless all content can be read and matches its digests."""
        for file in {file.sha256: file for file in _files(self.manifest)}.values():
            self.read(file)


def checkpoints(folder: Path) -> list[Checkpoint]:
    """Return the checkpoints in *folder*, oldest first; warn about invalid manifests.

    *folder* is the folder of a run, or the directory `checkpoints` in it.
    """
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
    """Return the last valid checkpoint in *folder*.

    If *step* is given, only a checkpoint of that step counts; if *below* is given, only checkpoints
    of earlier steps than that. A checkpoint is skipped with a warning if it is damaged or if
    *check* raises CheckpointError. Raise CheckpointError if none is left.
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
    """A writer of the checkpoints of *run* to *folder*.

    It keeps the last *keep* checkpoints and, if *best* names a measure, the best one by that
    measure. Checkpoints of an earlier run in the same directory stay until this run has completed
    one.
    """

    def __init__(self, folder: Path, run: str, *, keep: int = 3, best: Best | None = None) -> None:
        self._folder = folder
        self.run = run
        self._keep = keep
        self._best = best
        self._place = folder.parent, folder.name
        self._sequence, self._opened = 0, False

    def put(self, content: bytes) -> File:
        """Write *content* to a file named by its digest, unless that file exists, and return its
        entry.

        Raise OSError if writing fails.
        """
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
        """Add the checkpoint that *manifest* describes, and remove those that are no longer kept.

        `put` must have written all files that the manifest names. *in_use* has the digests of files
        that pending checkpoints need. If the manifest cannot be written, raise OSError and leave
        the directory unchanged.
        """
        self._open()
        manifest.run, manifest.sequence = self.run, self._sequence + 1
        path = self._folder / f"step-{manifest.step:08d}.json"
        with opened(*self._place, SHARDS) as shards:
            os.fsync(shards)
        with opened(*self._place) as folder:
            stage(folder, path.name, encode_manifest(manifest))
            put(folder, path.name)
            self._sequence += 1
            os.fsync(folder)
        self._rotate(in_use)
        return path

    def discard(self, in_use: Container[str] = ()) -> None:
        """Remove the content files that no checkpoint needs, except those with a digest in
        *in_use*.
        """
        if self._opened:
            self._sweep(in_use)

    def drop_others(self) -> None:
        """Remove the checkpoints of all other runs, even if this run has not written any."""
        others = [checkpoint.path.name for checkpoint in self._known() if checkpoint.manifest.run != self.run]
        if others or listed(*self._place, SHARDS):
            with opened(*self._place) as folder:
                for name in others:
                    remove_from(folder, name)
            self._sweep(())

    def _open(self) -> None:
        """Make the directory if necessary, and remove files that a killed process left
        half-written.
        """
        if self._opened:
            return
        self._folder.parent.mkdir(parents=True, exist_ok=True)
        with opened(*self._place, SHARDS, make=True):
            pass
        with opened(*self._place) as folder:
            os.fsync(folder)
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
        """Remove half-written files, and content files that no manifest names and that are not
        *in_use*.

        If a manifest cannot be read, keep all content, since a user may repair the manifest.
        """
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
    """Return the names of the manifests in *folder*. Raise OSError if it cannot be read."""
    return [name for name in listed(folder.parent, folder.name) if _NAME.fullmatch(name)]


def _read(folder: Path, *names: str, most_bytes: int) -> bytes:
    return read(folder.parent, folder.name, *names, most_bytes=most_bytes)


def _files(manifest: Manifest) -> Iterator[File]:
    for entry in manifest.ranks:
        yield from entry.files.values()
