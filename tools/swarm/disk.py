"""Checks of the order in which checkpoints reach the disk.

The content of a file must be on the disk before its name, and both before the manifest. The swarm
cannot cut the power. Instead, it uses the order of calls to find content that a power cut would
spoil.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Identity = tuple[int, int]
"""(device, inode): the identity of a file, independent of its name."""


@contextmanager
def audited(unsafe: list[str]) -> Iterator[None]:
    """Within the block, add a description to *unsafe* for each file that is renamed too early."""
    fsync, replace = os.fsync, os.replace
    synced: set[Identity] = set()
    unnamed: set[Identity] = set()  # folders with names that are not yet on the disk

    def noting_fsync(number: int) -> None:
        fsync(number)
        synced.add(_identity(os.fstat(number)))
        unnamed.discard(_identity(os.fstat(number)))

    def noting_replace(
        source: Any, target: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
    ) -> None:
        name = Path(target).name
        folder = _identity(os.stat(Path(target).parent, dir_fd=dst_dir_fd))
        manifest = name.startswith("step-") and name.endswith(".json")
        if manifest or (name.endswith(".safetensors") and name != "final.safetensors"):
            if _identity(os.stat(source, dir_fd=src_dir_fd)) not in synced:
                unsafe.append(f"{name} has its name before its content is on the disk")
            if manifest and unnamed - {folder}:
                unsafe.append(f"{name} names files whose names are not on the disk")
            unnamed.add(folder)
        replace(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    os.fsync, os.replace = noting_fsync, noting_replace
    try:
        yield
    finally:
        os.fsync, os.replace = fsync, replace


def _identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino
