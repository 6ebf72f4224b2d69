"""The directory that a run will write: its default name, and checks before the run that nothing foreign is there."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from simcluster.errors import Problem, UsageError
from simcluster.paths.inside import PARTIAL, links, read
from simcluster.process.platforms import need_unix
from simcluster.runs.folder import (
    CHECKPOINTS,
    FILES,
    LIVE,
    LOGS,
    NEEDED,
    ORDER,
    REPORT,
    SAMPLES,
    SHARDS,
    SOURCE,
    SUMMARY,
    SUMMARY_BYTES,
    TRACEBACK,
)

_NO_LINKS: Final = "a folder without links: what they lead to might be overwritten or removed"
OURS: Final = {*NEEDED, REPORT, SAMPLES, TRACEBACK, ORDER}
"""Files that a run killed while writing its directory may leave next to its checkpoints."""


def default_name(name: str, algorithm: str, backend: str, seed: int) -> Path:
    """Return the name of the last run by default: runs/<name>-<algorithm>-<backend>-seed<seed>."""
    # An algorithm may be a path such as my/algo.py:train; its last part suffices and makes one directory.
    parts = (name, algorithm.replace("\\", "/").rsplit("/", 1)[-1], backend, f"seed{seed}")
    return Path("runs") / "-".join("".join(c if c.isalnum() or c in "._+" else "_" for c in part) for part in parts)


def check_folder(folder: str | os.PathLike[str]) -> None:
    """Raise UsageError if *folder* holds anything but an earlier run, or cannot be written. Call it before a run."""
    folder = Path(folder)
    check_links(folder, (CHECKPOINTS,), (CHECKPOINTS, SHARDS), (LOGS,), (SOURCE,))
    check_writable(folder)
    if not folder.exists():
        return
    names = sorted(entry.name for entry in folder.iterdir())
    besides = (CHECKPOINTS, LOGS, LIVE, SOURCE, FILES)
    foreign = [name for name in names if name not in besides and not name.startswith(PARTIAL)]
    half_written = set(foreign) <= OURS and any((folder / CHECKPOINTS).glob("step-*.json"))
    try:
        summary = msgspec.json.decode(read(folder, SUMMARY, most_bytes=SUMMARY_BYTES)) if foreign else None
    except (OSError, ValueError, RecursionError):
        summary = None
    ours = isinstance(summary, dict) and {"backend", "algorithm", "trace_sha256"} <= summary.keys()
    if foreign and not half_written and not ours:
        some = ", ".join(foreign[:3]) + (", ..." if len(foreign) > 3 else "")
        raise UsageError(
            Problem("out", f"{folder} with {some}", "a run folder (with our summary.json), an empty or a new folder")
        )
    for name in sorted({*OURS, *(PARTIAL + name for name in OURS)} & set(names)):
        if not (folder / name).is_file():
            raise UsageError(Problem("out", f"{folder / name}, which is not a file", "a run folder, or a new one"))
    for name in (CHECKPOINTS, LOGS, SOURCE):
        if (folder / name).exists() and not (folder / name).is_dir():
            raise UsageError(Problem("out", f"{folder / name}, which is not a folder", "a run folder, or a new one"))


def check_links(folder: Path, *inner: Sequence[str]) -> None:
    """Raise UsageError if *folder*, or one of *inner* below it, has a symbolic link, which might lead elsewhere."""
    try:
        found = links(folder, *inner)
    except OSError as error:
        raise UsageError(Problem("out", f"{folder} ({error.filename}: {error.strerror})", _NO_LINKS)) from None
    if found:
        raise UsageError(Problem("out", f"the symbolic link {found[0]}", _NO_LINKS))


def check_writable(folder: Path, key: str = "out") -> None:
    """Raise UsageError if *folder* cannot be written or created. This is tried, and leaves nothing there."""
    need_unix("a run folder")
    try:
        above = next((place for place in (folder, *folder.absolute().parents) if place.exists()), Path("/"))
        if not above.is_dir():
            found, expected = f"{folder}, but {above} is a file", "a folder, or a name that is free"
            raise UsageError(Problem(key, f"the file {folder}" if above == folder else found, expected))
        os.rmdir(tempfile.mkdtemp(prefix=PARTIAL, dir=above))
    except OSError as error:
        found = f"{folder} cannot be written: {above}: {error.strerror}; choose another {key}"
        raise UsageError(Problem(key, found, "")) from None
