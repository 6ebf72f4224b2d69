"""A stand-in for Slurm's commands: an array is tasks as processes of this machine, one at a time, known by their files.

Installed in a directory for PATH as sbatch, squeue and scancel. Each task has a file in the directory `queue`: empty
while it waits, with the id of its process while it runs. A file `refused` makes sbatch fail with its text, `away` makes
squeue fail, and the task that `lost` names ends at once.

Each array has another id, as Slurm's have: the process that runs the tasks of a cancelled one may end after the next
one was submitted, and must not touch its files.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

JOB = 7
"""The id of the first array; the next ones follow."""


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
    with _alone(folder):
        arrays = folder / "arrays"
        job = JOB + (len(arrays.read_text()) if arrays.exists() else 0)
        with arrays.open("a") as file:
            file.write(".")
    for task in range(last + 1):
        (folder / "queue" / f"{job}_{task}").touch()
    print(f"{job};cluster", flush=True)
    if os.fork() == 0:
        devnull = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(devnull, number)
        os.setsid()
        for task in range(last + 1):
            _run_task(folder, script, options, job, task)


def _run_task(folder: Path, script: str, options: dict[str, str], job: int, task: int) -> None:
    place = folder / "queue" / f"{job}_{task}"
    with _alone(folder):
        if not place.exists():
            return  # cancelled before it began
        if (folder / "lost").exists() and (folder / "lost").read_text() == str(task):
            place.unlink()
            return
        with open(options["--output"].replace("%A", str(job)).replace("%a", str(task)), "wb") as output:
            environment = {**os.environ, "SLURM_ARRAY_TASK_ID": str(task)}
            process = subprocess.Popen(["/bin/sh", "-c", script], env=environment, stdout=output, stderr=output)
        place.write_text(str(process.pid))
    process.wait()
    place.unlink(missing_ok=True)


def squeue(folder: Path) -> None:
    if (folder / "away").exists():
        sys.exit("slurm_load_jobs error: Unable to contact slurm controller")
    for place in sorted((folder / "queue").iterdir()):
        print(place.name)


def scancel(folder: Path) -> None:
    with _alone(folder):
        for place in list((folder / "queue").iterdir()):
            pid = place.read_text()
            place.unlink(missing_ok=True)
            if pid:
                with suppress(ProcessLookupError):  # it ended by itself
                    os.kill(int(pid), signal.SIGKILL)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep a task from being started while all are cancelled."""
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    _, name, where, *given = sys.argv
    parsed = dict(option.partition("=")[::2] for option in given)
    if name == "sbatch":
        sbatch(Path(where), parsed)
    else:
        {"squeue": squeue, "scancel": scancel}[name](Path(where))
