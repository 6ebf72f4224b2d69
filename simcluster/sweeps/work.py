"""Runs one point in an engine's process, and leaves its run folder.

The folder is the only result: a point with a complete folder is never run again.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simcluster.errors import RunError, UsageError
from simcluster.paths.inside import remove, write_whole

ERROR, DIED = "error.txt", "died.txt"
"""Why a point has no run: it proved invalid when it ran; or its process died, which may not happen again."""


def run_point(document: Mapping[str, Any], folder: str, options: Mapping[str, Any]) -> None:
    """Run the experiment *document* into *folder*; a failed run is as complete as a successful one."""
    from simcluster.experiment.read import read_experiment
    from simcluster.experiment.run import run_plan
    from simcluster.process.kernels import heed_portable
    from simcluster.runs.folder import OURS

    heed_portable(options)
    target = Path(folder)
    if not is_complete(target):
        for name in OURS:  # left by a worker that was killed while writing
            remove(target, name)
    try:
        run_plan(read_experiment(document), out=target, options=dict(options), report=False)
    except (RunError, UsageError) as error:  # such as: does not fit into memory
        if error.folder is None or not is_complete(target):
            note(target, ERROR, f"{type(error).__name__}: {error}")


def is_complete(folder: Path) -> bool:
    """Whether *folder* has a run, or the reason why there is none; both are written last and atomically."""
    return (folder / "summary.json").is_file() or (folder / ERROR).is_file()


def note(folder: Path, name: str, text: str) -> None:
    """Write *text* into *folder* as ERROR or DIED."""
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder, name, content=f"{text}\n".encode())
