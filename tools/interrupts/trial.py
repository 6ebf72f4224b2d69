"""One trial: run a seed's command until its moment, interrupt it, and list broken promises."""

from __future__ import annotations

import re
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from simcluster.checkpoints.store import checkpoints, latest
from simcluster.errors import UsageError
from simcluster.paths.inside import PARTIAL
from simcluster.process.exits import INTERRUPTED
from simcluster.results import load_run
from simcluster.runs.folder import SUMMARY
from simcluster.runs.sweep.sweep_folder import POINTS
from simcluster.workloads.weights import weights_sha256
from tools.interrupts.case import ENDLESS, IMPORT_S, START_S, Case, arguments, draw, experiment, own_code
from tools.interrupts.processes import Command

TRIES = 6
"""The limit on draws for one trial. A case counts only if its command runs until its moment."""

MOMENT_S = 300.0
END_S = 60.0
EMPTY_S = 30.0
"""Timeouts until the moment, then until the command exits, and until its last process exits."""

ABORTS = re.compile(
    r"(?m)^(error: )?[\w.:]*(Error|Exception)\b|[Aa]bort|Traceback|terminate called|c10::|never awaited|was destroyed"
)
BEFORE_OURS = re.compile(
    r'Traceback .*\n(?:  (?!File ".*/simcluster/(?!__init__|__main__)).*\n)*KeyboardInterrupt\s*\Z'
)
"""Python's output if the Ctrl-C comes before our first line.

SIGINT then kills the process, and a shell shows 130.
"""
IN_SITE = re.compile(r"Fatal Python error: init_import_site.*\nKeyboardInterrupt\s*", re.DOTALL)
"""Python's output if the Ctrl-C comes while it sets up its path. The exit code is then 1."""


@dataclass(frozen=True)
class Found:
    """The outcome of a trial. *problems* lists broken promises.

    *early* is the number of earlier draws whose commands ended before their moments.
    """

    case: Case
    problems: list[str]
    early: int
    took_s: float
    ended_after_s: float


def run_trial(seed: int, backend: str) -> Found:
    """Run the trial of *seed*."""
    began_s = time.monotonic()
    for attempt in range(TRIES):
        case = draw(seed, backend, attempt)
        with tempfile.TemporaryDirectory(prefix="interrupts-", ignore_cleanup_errors=True) as folder:
            found = play(case, Path(folder))
        if found is not None:
            problems, ended_after_s = found
            return Found(case, problems, attempt, time.monotonic() - began_s, ended_after_s)
    return Found(case, [f"{TRIES} commands ended before their moment"], TRIES, time.monotonic() - began_s, 0.0)


def play(case: Case, folder: Path) -> tuple[list[str], float] | None:
    """Return (problems, seconds from the Ctrl-C to the end), or None if the command ended too
    early.
    """
    if case.is_own:
        (folder / "own.py").write_text(own_code(case))
    if case.command == "resume":
        began = replace(case, command="run", moment="checkpoint", at=0.0, terminal=False, again_s=None)
        _write(began, folder)
        before = _interrupt(began, folder)
        if before is None or before[0]:
            return before
    if case.command == "replace":
        earlier = replace(case, command="run", seed=case.seed + 1, checkpoint=False, report=False)
        _write(earlier, folder)
        command = Command(arguments(earlier), folder)
        try:
            assert command.code(MOMENT_S) == 0, command.said()
        finally:
            command.close()
    if case.command != "resume":
        _write(case, folder)
    return _interrupt(case, folder)


def _write(case: Case, folder: Path) -> None:
    (folder / "experiment.yaml").write_text(yaml.safe_dump(experiment(case)))


def _interrupt(case: Case, folder: Path) -> tuple[list[str], float] | None:
    has_come = _moment(case, folder)
    command = Command(arguments(case), folder, terminal=case.terminal)
    try:
        until_s = time.monotonic() + MOMENT_S
        while not has_come(command):
            if command.has_ended:
                return None if command.code(0.0) == 0 else ([f"ended by itself: {_tail(command)}"], 0.0)
            if time.monotonic() > until_s:
                return [f"the moment does not come: {case.words()}"], 0.0
            time.sleep(0.001)
        pressed_s = time.monotonic()
        command.press()
        code = None
        if case.again_s is not None:
            code = command.code(case.again_s)
            if code is None:
                command.press()
        if code is None:
            code = command.code(END_S)
        ended_after_s = time.monotonic() - pressed_s
        if code == 0 and case.ends:
            return None  # the command had already ended
        return [*_ending(command, code), *_folders(case, folder / "out")], ended_after_s
    finally:
        command.close()


def _moment(case: Case, folder: Path) -> Callable[[Command], bool]:
    """Return a function that tells from the command's progress whether the moment of *case* has
    come.

    Within some moments, the function also waits for a time that *case* draws.
    """
    out = folder / "out"
    at = case.at
    if case.moment in ("start", "import"):
        cpu_s = at * (START_S if case.moment == "start" else IMPORT_S)
        # On a fast machine the command may start other processes before it has used that CPU time.
        return lambda command: command.cpu_s >= cpu_s or len(command.left()) > 1
    if case.moment in ("nodes", "workers"):
        return lambda command: len(command.left()) >= 2 + int(4 * at)
    if case.moment == "training":
        return _later(at, (folder / "training").exists)
    if case.moment == "checkpoint":
        known = _checkpoints(out)
        wanted = 1 + int(3 * at)
        return _later(at / 10, lambda: len(_checkpoints(out) - known) >= wanted)
    if case.moment == "point":
        return _later(at, lambda: bool(list(out.glob(f"{POINTS}/*/{SUMMARY}"))))
    if case.moment == "table":
        return _later(at, lambda: bool(list(out.glob(f"{POINTS}/*/{SUMMARY}"))[1:]))
    return _later(at / 5, lambda: any(out.glob(f"{PARTIAL}*")))


def _checkpoints(out: Path) -> set[str]:
    return {path.name for path in out.glob("checkpoints/step-*.json")}


def _later(wait_s: float, condition: Callable[[], bool]) -> Callable[[Command], bool]:
    since: list[float] = []

    def has_come(_: Command) -> bool:
        if not since and condition():
            since.append(time.monotonic())
        return bool(since) and time.monotonic() - since[0] >= wait_s

    return has_come


def _ending(command: Command, code: int | None) -> list[str]:
    if code is None:
        return [f"did not end within {END_S:g} s of the Ctrl-C"]
    problems = []
    said = command.said()
    if (code == -signal.SIGINT and ("Traceback" not in said or BEFORE_OURS.search(said))) or (
        code == 1 and IN_SITE.fullmatch(said)
    ):
        code, said = INTERRUPTED, ""
    if code != INTERRUPTED:
        problems.append(f"exit code {code}: {_tail(command)}")
    if found := ABORTS.search(said):
        problems.append(f"said {found.group()!r}: {_tail(command)}")
    if said.splitlines().count("interrupted") > 1:
        problems.append(f"said more than once that it was interrupted: {_tail(command)}")
    if left := command.left(EMPTY_S):
        problems.append(f"left behind: {left}")
    return problems


def _tail(command: Command) -> str:
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", command.said())
    return repr("\n".join(line.rpartition("\r")[2] or line for line in plain.splitlines())[-2000:])


def _folders(case: Case, out: Path) -> list[str]:
    """Return the problems of folders that look complete but cannot be read or are inconsistent."""
    problems: list[str] = []
    for folder in [out, *out.glob(f"{POINTS}/*")]:
        try:
            if (folder / SUMMARY).exists():
                problems += _whole(folder, case)
            if checkpoints(folder):
                latest(folder)
        except (UsageError, OSError, ValueError) as error:
            problems.append(f"{folder.name} does not read: {error}")
    return problems


def _whole(folder: Path, case: Case) -> list[str]:
    """Read every file of the run in *folder*.

    Return a problem if the files belong to several runs.
    """
    run = load_run(folder)
    problems = []
    seeds = {run.summary["seed"], run.config["seed"], run.trace["otherData"]["seed"]}
    if len(seeds) != 1:
        problems.append(f"the files are of several runs: seeds {sorted(seeds)}")
    if run.summary["status"] != "done" or run.summary["steps"] >= ENDLESS:
        problems.append(f"{run.summary['status']} after {run.summary['steps']} steps")
    if not len(run.metrics) or not len(run.samples):
        problems.append("metrics or samples are empty")
    weights = run.weights()
    if weights_sha256(list(weights), list(weights.values())) != run.summary["weights_sha256"]:
        problems.append("the weights are those of another run")
    return problems
