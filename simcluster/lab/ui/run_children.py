"""Run what the page has started: each run or sweep is a process, without a shell.

These processes end with this process, even if it is killed.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from simcluster.errors import Problem, UsageError
from simcluster.process.exits import INTERRUPTED
from simcluster.process.signals import kill_group
from simcluster.process.tied import LEAVE_S, TIED

MOST_RUNNING, MOST_KEPT = 4, 64
"""Limits on the running processes, and on the finished processes that the page still lists."""

LINES, LINE_CHARACTERS = 500, 2000
"""Limits per process on the number of its last output lines that are kept, and on their length."""

FOLDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")

Word = Annotated[str, Field(max_length=1000)]
Lines = Annotated[list[Annotated[str, Field(max_length=4000)]], Field(max_length=200)]


class RunForm(BaseModel):
    """The form that starts a run or a sweep of an experiment, with overrides.

    *seeds*, *pairs* and *targets* are only for a sweep.
    """

    model_config = ConfigDict(extra="forbid")

    kind: Literal["run", "sweep"] = "run"
    experiment: Annotated[str, Field(min_length=1, max_length=1000)]
    algorithm: Word = ""
    topology: Word = ""
    backend: Word = ""
    seed: Annotated[int, Field(ge=0, lt=1 << 63)] | None = None
    sets: Lines = []
    pairs: Lines = []
    targets: Lines = []
    seeds: Annotated[int, Field(ge=1, le=100_000)] | None = None
    folder: Word = ""


class Child:
    """A process, the name of its run's folder, and the last lines that it printed."""

    def __init__(self, name: str, argv: Sequence[str]) -> None:
        self.name, self.argv = name, list(argv)
        self._lines: deque[str] = deque(maxlen=LINES)
        self._is_stopped = False
        self._process = subprocess.Popen(  # noqa: S603 - a list of arguments, checked in `command`
            [*TIED, *self.argv],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"}, start_new_session=True, text=True, errors="replace",
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def as_dict(self) -> dict[str, Any]:
        """Return the process as JSON-compatible values; "code" is None while the process runs.

        A stopped process has the code of Ctrl-C unless it exited with 0.
        """
        code = self._process.poll()
        if code is not None:
            self._reader.join(1.0)
        # If Ctrl-C arrives before the command has set its handlers, Python ends with another code.
        if code and self._is_stopped:
            code = INTERRUPTED
        return {"id": self.name, "argv": ["simcluster", *self.argv], "code": code, "lines": list(self._lines)}

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> None:
        """Send Ctrl-C to the process; kill it if it has not ended after LEAVE_S."""
        self._is_stopped = self._is_stopped or self.runs
        self._process.send_signal(signal.SIGINT)  # A process that has ended is not affected.
        killer = threading.Timer(LEAVE_S, self._kill)
        killer.daemon = True
        killer.start()

    def wait(self, timeout_s: float) -> None:
        """Wait for the process to end; kill it if it has not ended after *timeout_s*."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._kill()
            self._process.wait()

    def _kill(self) -> None:
        if self.runs:
            kill_group(self._process.pid)

    def _read(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdin is not None
        with self._process.stdin, self._process.stdout as printed:
            while line := printed.readline(LINE_CHARACTERS):
                self._lines.append(line.rstrip("\n"))
            # Wait before closing the input: for a running process, closed input counts as Ctrl-C.
            self._process.wait()


class Children:
    """The processes of runs and sweeps that were started into folders below *root*."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._all: dict[str, Child] = {}
        self._lock = threading.Lock()

    def start(self, wanted: RunForm) -> dict[str, Any]:
        """Start a run or a sweep.

        Raise UsageError if the form is invalid, or if too many runs are in progress.
        """
        with self._lock:
            running = sum(child.runs for child in self._all.values())
            if running >= MOST_RUNNING:
                raise UsageError("start", f"{running} runs", f"at most {MOST_RUNNING} at once: stop one first")
            name = self._folder(wanted)
            child = Child(name, command(wanted, self._root / name))
            self._all.pop(name, None)
            self._all[name] = child
            for old in [name for name, one in self._all.items() if not one.runs][:-MOST_KEPT]:
                del self._all[old]
            return child.as_dict()

    def all(self) -> list[dict[str, Any]]:
        """Return all listed processes as JSON-compatible values, the latest first."""
        with self._lock:
            return [child.as_dict() for child in reversed(self._all.values())]

    def stop(self, name: str) -> None:
        """Stop the run in the folder *name*. Raise UsageError if it was not started here."""
        with self._lock:
            if (child := self._all.get(name)) is None:
                raise UsageError("run", repr(name), "a run that this page has started")
            child.stop()

    def close(self) -> None:
        """Stop all running processes, and wait until they have ended."""
        running = [child for child in self._all.values() if child.runs]
        for child in running:
            child.stop()
        for child in running:
            child.wait(LEAVE_S)

    def _folder(self, wanted: RunForm) -> str:
        """Return the name of the run's folder: the requested name, or a new one."""
        if wanted.folder:
            if not FOLDER.fullmatch(wanted.folder):
                expected = f"letters, digits and . _ + -, at most 100, for a folder below {self._root}"
                raise UsageError("folder", repr(wanted.folder[:120]), expected)
            if (child := self._all.get(wanted.folder)) is not None and child.runs:
                raise UsageError("folder", repr(wanted.folder), "another one: a run is going on there")
            return wanted.folder
        last = "sweep" if wanted.kind == "sweep" else wanted.backend or "sim"
        stem = re.sub(r"[^A-Za-z0-9._+-]", "_", f"{Path(wanted.experiment).stem}-{last}").strip("._+-")
        names = (f"{stem[:80] or 'run'}-{number}" for number in range(1, 1_000_000))
        return next(name for name in names if name not in self._all and not os.path.lexists(self._root / name))


def command(wanted: RunForm, out: Path) -> list[str]:
    """Return the arguments of `simcluster` that run *wanted* and put the results into *out*.

    No string of the form can become another option. Raise UsageError for a run with options that
    only a sweep has.
    """
    of_sweep = [key for key in ("seeds", "pairs", "targets") if getattr(wanted, key)]
    if wanted.kind == "run" and of_sweep:
        raise UsageError([Problem(key, "a run with it", "a sweep") for key in of_sweep])
    options = [
        *(
            f"--{key}={value}"
            for key in ("algorithm", "topology", "backend")
            if (value := getattr(wanted, key).strip())
        ),
        *([f"--seed={wanted.seed}"] if wanted.seed is not None else []),
        *([f"--seeds={wanted.seeds}"] if wanted.seeds is not None else []),
        *(
            f"--{option}={line.strip()}"
            for option, lines in (("set", wanted.sets), ("pair", wanted.pairs), ("target", wanted.targets))
            for line in lines
            if line.strip()
        ),
        f"--out={out}",
    ]
    if any("\0" in word for word in [*options, wanted.experiment]):
        raise UsageError("start", "a zero byte", "text")
    return [wanted.kind, *options, "--", wanted.experiment.strip()]
