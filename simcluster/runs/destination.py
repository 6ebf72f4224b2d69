"""The directory that a run will write: its default name, and checks for foreign files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from simcluster.errors import UsageError
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

_NO_LINKS = "a folder without links: what they lead to might be overwritten or removed"
OURS = {*NEEDED, REPORT, SAMPLES, TRACEBACK, ORDER}
"""Files that a run may leave next to its checkpoints if it is killed while writing them."""


def default_name(name: str, algorithm: str, backend: str, seed: int) -> Path:
    """Return runs/<name>-<algorithm>-<backend>-seed<seed>, the default link to the last run."""
    # An algorithm may be a path such as my/algo.py:train; its last part suffices and makes one directory.
    parts = (name, algorithm.replace("\\", "/").rsplit("/", 1)[-1], backend, f"seed{seed}")
    return Path("runs") / "-".join("".join(c if c.isalnum() or c in "._+" else "_" for c in part) for part in parts)


def check_folder(folder: str | os.PathLike[str]) -> None:
    """Raise UsageError if *folder* holds anything but an earlier run, or is not writable.

    Call this before a run, so that its results are not lost.
    """
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
            "out", f"{folder} with {some}", "a run folder (with our summary.json), an empty or a new folder"
        )
    files = sorted({*OURS, *(PARTIAL + name for name in OURS)} & set(names))
    for kind, known, fits in (("file", files, Path.is_file), ("folder", (CHECKPOINTS, LOGS, SOURCE), Path.is_dir)):
        for path in (folder / name for name in known):
            if path.exists() and not fits(path):
                raise UsageError("out", f"{path}, which is not a {kind}", "a run folder, or a new one")


def check_links(folder: Path, *inner: Sequence[str]) -> None:
    """Raise UsageError if *folder*, or a path of *inner* below it, contains a symbolic link.

    A link might lead to files outside, which the run would then overwrite or remove.
    """
    try:
        found = links(folder, *inner)
    except OSError as error:
        raise UsageError("out", f"{folder} ({error.filename}: {error.strerror})", _NO_LINKS) from None
    if found:
        raise UsageError("out", f"the symbolic link {found[0]}", _NO_LINKS)


def check_writable(folder: Path, key: str = "out") -> None:
    """Raise UsageError if *folder* cannot be written or created.

    The check makes and removes a directory: permission bits alone do not show read-only mounts.
    """
    need_unix("a run folder")
    try:
        above = next((place for place in (folder, *folder.absolute().parents) if place.exists()), Path("/"))
        if not above.is_dir():
            found, expected = f"{folder}, but {above} is a file", "a folder, or a name that is free"
            raise UsageError(key, f"the file {folder}" if above == folder else found, expected)
        os.rmdir(tempfile.mkdtemp(prefix=PARTIAL, dir=above))
    except OSError as error:
        found = f"{folder} cannot be written: {above}: {error.strerror}; choose another {key}"
        raise UsageError(key, found, "") from None
