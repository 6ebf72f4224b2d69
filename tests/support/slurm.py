"""A stand-in for Slurm's commands: an array is tasks as processes of this machine, one at a time, known by their files.

Installed in a directory for PATH as sbatch, squeue and scancel. Each task has a file in the directory `queue`: empty
while it waits, with the id of its process while it runs. A file `refused` makes sbatch fail with its text, `away` makes
squeue fail, and the task that `lost` names ends at once.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

JOB = "7"


def install(folder: Path) -> Path:
    """Make the commands in *folder*; return the directory of the queue."""
    (folder / "queue").mkdir(parents=True)
    for name in ("sbatch", "squeue", "scancel"):
        command = folder / name
        command.write_text(f'#!/bin/sh\nexec {sys.executable} {__file__} {name} {folder} "$@"\n')
        command.chmod(0o755)
    return folder / "queue"


def sbatch(folder: Path, options: dict[str, str]) -> None:
    if (folder / "refused").exists():
        sys.exit((folder / "refused").read_text())
    script = sys.stdin.read()
    last = int(options["--array"].split("-")[1].split("%")[0])
    for task in range(last + 1):
        (folder / "queue" / f"{JOB}_{task}").touch()
    print(f"{JOB};cluster", flush=True)
    if os.fork() == 0:
        devnull = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(devnull, number)
        os.setsid()
        for task in range(last + 1):
            _run_task(folder, script, options, task)


def _run_task(folder: Path, script: str, options: dict[str, str], task: int) -> None:
    place = folder / "queue" / f"{JOB}_{task}"
    if not place.exists():
        return  # cancelled before it began
    if (folder / "lost").exists() and (folder / "lost").read_text() == str(task):
        place.unlink()
        return
    with open(options["--output"].replace("%A", JOB).replace("%a", str(task)), "wb") as output:
        environment = {**os.environ, "SLURM_ARRAY_TASK_ID": str(task)}
        command = ["/bin/sh", "-c", script]
        with subprocess.Popen(command, env=environment, stdout=output, stderr=output) as process:
            place.write_text(str(process.pid))
    place.unlink(missing_ok=True)


def squeue(folder: Path) -> None:
    if (folder / "away").exists():
        sys.exit("slurm_load_jobs error: Unable to contact slurm controller")
    for place in sorted((folder / "queue").iterdir()):
        print(place.name)


def scancel(folder: Path) -> None:
    for place in list((folder / "queue").iterdir()):
        pid = place.read_text()
        place.unlink(missing_ok=True)
        if pid:
            os.kill(int(pid), signal.SIGKILL)


if __name__ == "__main__":
    _, name, where, *given = sys.argv
    parsed = dict(option.partition("=")[::2] for option in given)
    if name == "sbatch":
        sbatch(Path(where), parsed)
    else:
        {"squeue": squeue, "scancel": scancel}[name](Path(where))
