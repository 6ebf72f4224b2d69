"""Runs one point, in whatever process an engine has for it, and leaves its run folder behind.

The folder is all that comes of it: a point whose folder is complete is never run again.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simcluster.errors import RunError, UsageError
from simcluster.inside import remove, write_whole

ERROR, DIED = "error.txt", "died.txt"
"""Why a point has no run: what was wrong with it could be told only when it was to run; or its process died, which the
next one may not."""


def run_point(document: Mapping[str, Any], folder: str, options: Mapping[str, Any]) -> None:
    """Runs the experiment *document* into *folder*; a run that fails is as complete as one that does not."""
    from simcluster.experiment.read import read_experiment
    from simcluster.experiment.run import run_plan
    from simcluster.kernels import heed_portable
    from simcluster.runs.folder import OURS

    heed_portable(options)
    target = Path(folder)
    if not is_complete(target):
        for name in OURS:  # what a worker that was killed between two of them has written
            remove(target, name)
    try:
        run_plan(read_experiment(document), out=target, options=dict(options), report=False)
    except RunError as error:
        if error.folder is None or not is_complete(target):
            note(target, ERROR, f"{type(error).__name__}: {error}")
    except UsageError as error:  # does not fit into memory, say
        note(target, ERROR, f"{type(error).__name__}: {error}")


def warm_up() -> None:
    """What every point needs, imported before the first of them."""
    from simcluster.experiment import node, read, run  # noqa: F401


def is_complete(folder: Path) -> bool:
    """Whether *folder* has a run, or the reason why there is none; both are written last and at once."""
    return (folder / "summary.json").is_file() or (folder / ERROR).is_file()


def note(folder: Path, name: str, text: str) -> None:
    """Leaves *text* in *folder* as ERROR or DIED."""
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder, name, content=f"{text}\n".encode())
