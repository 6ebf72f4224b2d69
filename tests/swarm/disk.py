"""Watches in which order checkpoints get to the disk: content before its name, and both before a manifest names them.

A simulated run loses no power, so what a power cut would spoil is found by the order of calls. This file knows the
system's calls and names of files. It must not know runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

OPEN_FILES = Path("/proc/self/fd")


@contextmanager
def audited(unsafe: list[str]) -> Iterator[None]:
    """Notes in *unsafe* what is renamed too early. Where the system has no /proc nothing is noted."""
    if not OPEN_FILES.is_dir():
        yield
        return
    fsync, replace = os.fsync, os.replace
    synced: set[str] = set()
    unnamed: set[str] = set()  # folders with names that are not on the disk yet

    def noting_fsync(number: int) -> None:
        fsync(number)
        path = str((OPEN_FILES / str(number)).readlink())
        synced.add(path)
        unnamed.discard(path)

    def noting_replace(source: Any, target: Any, **options: Any) -> None:
        name, folder = Path(target).name, str(Path(target).resolve().parent)
        manifest = name.startswith("step-") and name.endswith(".json")
        if manifest or Path(folder).name == "shards":
            if str(Path(source).resolve()) not in synced:
                unsafe.append(f"{name} has its name before its content is on the disk")
            if manifest and str(Path(folder) / "shards") in unnamed:
                unsafe.append(f"{name} names files whose names are not on the disk")
            unnamed.add(folder)
        replace(source, target, **options)

    os.fsync, os.replace = noting_fsync, noting_replace
    try:
        yield
    finally:
        os.fsync, os.replace = fsync, replace
