"""A task of a sweep's array: runs its points in this process. Slurm starts it."""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path

from simcluster.lab.sweeps.points import DIED, note, run_point
from simcluster.lab.sweeps.slurm import calls_of


def main(logs: Path) -> None:
    given = json.loads((logs / calls_of(int(os.environ["SLURM_ARRAY_TASK_ID"]))).read_bytes())
    sys.path[:] = given["path"]
    for document, folder, options in given["calls"]:
        try:
            run_point(document, folder, options)
        except Exception as error:  # of one point: the others do run
            traceback.print_exc()
            note(Path(folder), DIED, f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
