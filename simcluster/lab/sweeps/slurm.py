"""Sweeps on Slurm: an array of tasks, each of which runs several points in one process.

Only sbatch, squeue and scancel are used. Many clusters lack accounting (sacct), and it is not
needed: a task that has left the queue has ended, and each of its points is complete or has died.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from simcluster.errors import UsageError
from simcluster.lab.sweeps.points import DIED, is_complete
from simcluster.paths.inside import opened, read, remove, write_whole

TASKS_PER_JOB = 4
"""Number of array tasks for each task that may run at a time.

With few tasks, short points share a process; with many, all jobs end at about the same time.
"""

MOST_TASKS = 1000
"""Largest array that Slurm accepts by default."""

POLL_S = 0.5
POLLS_PER_QUEUE = 10
"""Interval between checks of the points' folders; every tenth check also asks for the queue."""

LAG_S = 10.0
"""Time after which files that a task wrote are visible here, on a network file system."""

GONE_S = 60.0
"""Limit on the wait for an empty queue at the end: a node that does not answer may stay longer."""

ANSWER_S = 60.0
"""Limit on the time of one Slurm command."""

NOTE_BYTES = 1 << 20
OUTPUT = "slurm-%A_%a.txt"


def run_on_slurm(calls: Sequence[tuple[Any, ...]], jobs: int, logs: Path) -> Generator[tuple[int, str | None]]:
    """Run *calls* of `run_point` on Slurm; yield (number of the call, error or None).

    At most *jobs* tasks run at once. An interrupt cancels the array. Raise UsageError if Slurm
    refuses the array.
    """
    name = _name_of(logs)
    tasks = min(len(calls), TASKS_PER_JOB * jobs, MOST_TASKS)
    numbers = {task: list(range(task, len(calls), tasks)) for task in range(tasks)}
    with opened(logs, make=True):
        pass
    for task, ours in numbers.items():
        for number in ours:
            remove(Path(calls[number][1]), DIED)
        content = {"path": sys.path, "calls": [calls[number] for number in ours]}
        write_whole(logs, calls_of(task), content=json.dumps(content, default=str).encode(), durable=False)
    try:
        job = _submit(name, tasks, jobs, logs)
        yield from _ends(name, job, numbers, [Path(call[1]) for call in calls], logs)
    except BaseException:
        with suppress(UsageError):  # Without scancel, the original error still counts.
            _asked("scancel", "--me", f"--name={name}")
        raise
    finally:
        _wait_until_gone(name)
        for task in numbers:
            remove(logs, calls_of(task))


def calls_of(task: int) -> str:
    """Return the name of the file with the calls of *task*."""
    return f"slurm-calls-{task}.json"


def _ends(
    name: str, job: str, numbers: dict[int, list[int]], folders: Sequence[Path], logs: Path
) -> Generator[tuple[int, str | None]]:
    """Yield (number, error or None) of each point as it ends, until all have ended."""
    waiting = {task: set(ours) for task, ours in numbers.items()}
    left_s: dict[int, float] = {}
    for look in count():
        if look % POLLS_PER_QUEUE == 0:
            queue = _queue(name)
            if not queue.returncode:  # If Slurm does not answer now, ask again later.
                there = set(queue.stdout.split())
                left_s = {task: left_s.get(task, time.monotonic()) for task in waiting if f"{job}_{task}" not in there}
        for task, ours in list(waiting.items()):
            is_over = task in left_s and time.monotonic() >= left_s[task] + LAG_S
            for number in sorted(ours):
                if is_complete(folders[number]):
                    error = None
                elif (folders[number] / DIED).is_file():
                    error = read(folders[number], DIED, most_bytes=NOTE_BYTES).decode(errors="replace").strip()
                elif is_over:
                    log = OUTPUT.replace("%A", job).replace("%a", str(task))
                    error = f"its job ended; see {logs.name}/{log}"
                else:
                    continue
                ours.remove(number)
                yield number, error
            if not ours:
                del waiting[task]
        if not waiting:
            return
        time.sleep(POLL_S)


def _submit(name: str, tasks: int, jobs: int, logs: Path) -> str:
    """Submit the array and return its id.

    sbatch also reads options from variables such as SBATCH_PARTITION.
    """
    command = shlex.join([sys.executable, "-m", "simcluster.lab.sweeps.slurm_task", str(logs)])
    output = str(logs.resolve()).replace("%", "%%") + "/" + OUTPUT
    array = f"--array=0-{tasks - 1}%{min(jobs, tasks)}"
    done = _asked(
        "sbatch", "--parsable", f"--job-name={name}", array, f"--output={output}", script=f"#!/bin/sh\nexec {command}\n"
    )
    if done.returncode:
        raise UsageError("--engine slurm", _said(done), f"an array of {tasks} tasks that sbatch accepts")
    return done.stdout.split(";")[0].strip()


def _queue(name: str) -> subprocess.CompletedProcess[str]:
    """Ask squeue for the pending and running tasks, as "job_task", of the arrays called *name*."""
    return _asked("squeue", "--noheader", "--array", "--me", f"--name={name}", "--format=%F_%K")


def _name_of(logs: Path) -> str:
    """Return the name of all arrays of the sweep that has the directory *logs*."""
    return "simcluster-" + hashlib.sha256(str(logs.resolve()).encode()).hexdigest()[:12]


def refuse_twice(logs: Path) -> None:
    """Raise UsageError if Slurm does not answer, or its queue has tasks of the same sweep."""
    name = _name_of(logs)
    done = _queue(name)
    if done.returncode:
        raise UsageError("--engine slurm", _said(done), "a Slurm that answers")
    if queue := done.stdout.split():
        found = f"{len(queue)} tasks of this sweep in the queue, such as {min(queue)}"
        raise UsageError("--engine slurm", found, f"none: wait until they have ended, or scancel --name={name}")


def _wait_until_gone(name: str) -> None:
    """Wait until the queue has no task of the sweep, so that the sweep can be started again."""
    until_s = time.monotonic() + GONE_S
    while time.monotonic() < until_s:
        queue = _queue(name)
        if not queue.returncode and not queue.stdout.strip():
            return
        time.sleep(POLL_S)


def _asked(program: str, *arguments: str, script: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command of Slurm with *script* as its input.

    A command that does not end within `ANSWER_S` counts as failed. Raise UsageError if this
    machine has no such command.
    """
    path = shutil.which(program)
    if path is None:
        raise UsageError("--engine slurm", f"no {program} on PATH", "a machine that submits jobs to Slurm")
    command = [path, *arguments]
    try:
        return subprocess.run(  # noqa: S603 - a list of arguments, made here
            command, input=script, capture_output=True, text=True, check=False, timeout=ANSWER_S
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"{program} has not answered for {ANSWER_S:g} s")


def _said(done: subprocess.CompletedProcess[str]) -> str:
    return " ".join(done.stderr.split()) or f"{done.args[0]} ended with {done.returncode}"
