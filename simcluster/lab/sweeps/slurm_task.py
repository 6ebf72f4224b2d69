"""The program of one task of a sweep's Slurm array: it runs the points of the task."""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path

from simcluster.lab.sweeps.points import DIED, note, run_point
from simcluster.lab.sweeps.slurm import calls_of


def main(logs: Path) -> None:
    """Run the calls in this task's file in *logs*."""
    given = json.loads((logs / calls_of(int(os.environ["SLURM_ARRAY_TASK_ID"]))).read_bytes())
    sys.path[:] = given["path"]
    for document, folder, options in given["calls"]:
        try:
            run_point(document, folder, options)
        except Exception as error:  # Only this point fails: the others still run.
            traceback.print_exc()
            note(Path(folder), DIED, f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
