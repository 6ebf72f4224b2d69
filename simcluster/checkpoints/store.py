"""The folder of a run's checkpoints: content by its digest, and a manifest a step that names it.

    checkpoints/step-00000100.json        complete: all that it names is there, and on the disk
    checkpoints/shards/<sha256>.safetensors   what several ranks or steps have alike is there once

The manifest is renamed into place last, and what an older one needs goes after that; so whatever ends in between, the
last complete checkpoint is there. This file knows names and digests. It must not know tensors, ranks or experiments.
"""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from simcluster.checkpoints.disk import PARTIAL, remove, sync_folder, write_whole
from simcluster.checkpoints.manifest import File, Manifest, decode_manifest, encode_manifest
from simcluster.errors import CheckpointError, CheckpointWarning

SHARDS = "shards"
_NAME = re.compile(r"step-\d{8,}\.json")

Best = Literal["accuracy", "loss"]


@dataclass(frozen=True)
class Checkpoint:
    """One that is complete by its manifest; `check` reads all of it."""

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
        """The content of *file*. Raises CheckpointError if it is not what was written."""
        path = self.path.parent / SHARDS / f"{file.sha256}.safetensors"
        try:
            content = path.read_bytes()
        except OSError as error:
            raise CheckpointError(str(path), error.strerror or str(error), "a file that can be read") from None
        if len(content) != file.size_bytes or hashlib.sha256(content).hexdigest() != file.sha256:
            raise CheckpointError(str(path), "other bytes", "those that were written, by their digest")
        return content

    def check(self) -> None:
        """Raises CheckpointError unless every byte is as it was written."""
        for file in {file.sha256: file for file in _files(self.manifest)}.values():
            self.read(file)


def checkpoints(folder: Path) -> list[Checkpoint]:
    """Those in *folder*, a run's or its `checkpoints`, by age; what is no manifest is passed over with a warning."""
    inner = folder / "checkpoints"
    found = []
    for path in _manifests(inner if inner.is_dir() else folder):
        try:
            found.append(Checkpoint(path, decode_manifest(path.read_bytes(), str(path))))
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
    """Return the last checkpoint in *folder* whose bytes are right, or that of *step*, or of a step *below* one.

    One for which *check* raises CheckpointError is passed over, too; older ones are tried with a warning. Raises
    CheckpointError if there is none.
    """
    found = checkpoints(folder)
    for checkpoint in reversed(found):
        if checkpoint.step != (checkpoint.step if step is None else step):
            continue
        if below is not None and checkpoint.step >= below:
            continue
        try:
            check(checkpoint.manifest)
            checkpoint.check()
        except CheckpointError as error:
            warnings.warn(f"{checkpoint.path.name} is passed over: {error}", CheckpointWarning, stacklevel=2)
            continue
        return checkpoint
    steps = ", ".join(str(checkpoint.step) for checkpoint in found) or "none"
    wanted = "a complete checkpoint" if step is None else f"a complete checkpoint of step {step}"
    raise CheckpointError(str(folder), f"checkpoints of steps: {steps}", f"{wanted}")


class Store:
    """Writes checkpoints of *run* into *folder*; keeps the last *keep* of them and the *best*.

    Those of an earlier run in the same folder stay until one of this run is complete.
    """

    def __init__(self, folder: Path, run: str, *, keep: int = 3, best: Best | None = None) -> None:
        self._folder, self._run, self._keep, self._best = folder, run, keep, best
        self._sequence = 0
        self._opened = False

    @property
    def run(self) -> str:
        return self._run

    def put(self, content: bytes) -> File:
        """*content*, written if it is not there yet. Raises OSError."""
        self._open()
        file = File(hashlib.sha256(content).hexdigest(), len(content))
        path = self._path(file.sha256)
        if not path.is_file() or path.stat().st_size != file.size_bytes:
            write_whole(path, content)
        return file

    def commit(self, manifest: Manifest, in_use: Container[str] = ()) -> Path:
        """Makes *manifest*, whose files were put, the last checkpoint; drops those that are not kept any more.

        *in_use* are digests that are put for checkpoints to come. Raises OSError, with the folder as it was.
        """
        self._open()
        manifest.run, manifest.sequence = self._run, self._sequence + 1
        path = self._folder / f"step-{manifest.step:08d}.json"
        sync_folder(self._folder / SHARDS)
        write_whole(path, encode_manifest(manifest))
        self._sequence += 1
        sync_folder(self._folder)
        self._rotate(in_use)
        return path

    def discard(self, in_use: Container[str] = ()) -> None:
        """Takes away what no checkpoint and nobody in *in_use* needs."""
        if self._opened:
            self._sweep(in_use)

    def drop_others(self) -> None:
        """Takes away the checkpoints of other runs, at the end of one that has none, too."""
        if (self._folder / SHARDS).is_dir():
            for checkpoint in self._known():
                if checkpoint.manifest.run != self._run:
                    remove(checkpoint.path)
            self._sweep(())

    # inside

    def _open(self) -> None:
        """Makes the folder, and takes away what a killed writer left half done."""
        if self._opened:
            return
        (self._folder / SHARDS).mkdir(parents=True, exist_ok=True)
        sync_folder(self._folder)
        self._sequence = max((checkpoint.manifest.sequence for checkpoint in self._known()), default=0)
        self._opened = True
        self._sweep(())

    def _path(self, digest: str) -> Path:
        return self._folder / SHARDS / f"{digest}.safetensors"

    def _known(self) -> list[Checkpoint]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CheckpointWarning)
            return checkpoints(self._folder)

    def _rotate(self, in_use: Container[str]) -> None:
        ours = [checkpoint for checkpoint in self._known() if checkpoint.manifest.run == self._run]
        kept = {checkpoint.path for checkpoint in ours[-self._keep :]}
        judged = [checkpoint for checkpoint in ours if self._best in checkpoint.judged]
        if self._best is not None and judged:
            sign = 1 if self._best == "accuracy" else -1
            kept.add(max(judged, key=lambda one: (sign * one.judged[str(self._best)], one.step)).path)
        for path in _manifests(self._folder):
            if path not in kept:
                remove(path)
        self._sweep(in_use)

    def _sweep(self, in_use: Container[str]) -> None:
        """A file stays if a manifest names it: also one that cannot be read, for which a person may want it."""
        if len(list(_manifests(self._folder))) == len(known := self._known()):
            needed = {file.sha256 for checkpoint in known for file in _files(checkpoint.manifest)}
            for path in sorted((self._folder / SHARDS).iterdir()):
                if path.stem not in needed and path.stem not in in_use and not path.name.endswith(PARTIAL):
                    remove(path)
        for path in [*self._folder.glob(f"*{PARTIAL}"), *(self._folder / SHARDS).glob(f"*{PARTIAL}")]:
            remove(path)


def _manifests(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        yield from sorted(path for path in folder.iterdir() if _NAME.fullmatch(path.name))


def _files(manifest: Manifest) -> Iterator[File]:
    for entry in manifest.ranks:
        yield from entry.files.values()
