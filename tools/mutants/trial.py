"""Tries mutants, each in a separate process with a changed copy of the library.

The processes must import the copy, so this module imports nothing of the library. They are forked
from a process that has imported the heavy packages.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.root import ROOT

PROCESSOR_S = 90
"""The limit on a trial's CPU time, which does not depend on the machine's load.

A trial needs about 3 s.
"""
REAL_S = 400.0
"""The limit on a trial's wall time, for trials that wait without computing."""
AT_ONCE = 2

_HEAVY = (
    "torch", "torch.utils.data", "torch.utils.flop_counter", "torch.nn.utils", "numpy", "networkx", "pydantic",
    "annotated_types", "msgspec", "simpy", "google_crc32c", "yaml", "safetensors.torch", "pandas", "importlib.metadata",
)  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """A *defect* of the library: in *file*, the text *old* becomes *new*.

    *old* occurs exactly once. *more* is another (old, new) in the same file. In the simulator,
    *check* must fail for *algorithm* with *settings* on one of the numbers of *nodes*, and with
    *workload* instead of the usual one.
    """

    number: str
    defect: str
    file: str
    old: str
    new: str
    algorithm: str
    check: str
    settings: dict[str, Any] = field(default_factory=dict)
    nodes: tuple[int, ...] = (1, 2, 3)
    more: tuple[str, str] | None = None
    workload: dict[str, Any] | None = None

    @property
    def options(self) -> dict[str, Any]:
        """The options of `verify` that reveal the defect."""
        shown = {"settings": self.settings, "nodes": self.nodes, "only": [self.check], "workload": self.workload}
        return {"backend": "sim", "quick": True, **shown}

    def put_into(self, text: str) -> str:
        """Return *text* with the defect.

        Raise ValueError unless each old text occurs exactly once.
        """
        for old, new in [(self.old, self.new), *([self.more] if self.more else [])]:
            if text.count(old) != 1 or old == new:
                raise ValueError(f"{self.file} has {text.count(old)} times, not once: {old!r}")
            text = text.replace(old, new)
        return text


@dataclass(frozen=True)
class Found:
    """The result of `verify`: each failed check as [name, reason].

    If there is no result, *trouble* says why.
    """

    failed: list[list[str]]
    trouble: str = ""

    @property
    def caught(self) -> bool:
        return bool(self.failed) and not self.trouble


def try_all(mutants: Sequence[Mutant]) -> list[Found]:
    """Try all *mutants*. Return the results in the same order."""
    import_heavy()
    with tempfile.TemporaryDirectory(prefix="mutants-") as place:
        trials = Trials(Path(place), mutants)
        try:
            return trials.run()
        finally:
            trials.end()


class Trials:
    """A pool of AT_ONCE processes. Each trial has a folder in *place*."""

    def __init__(self, place: Path, mutants: Sequence[Mutant]) -> None:
        self._place, self._mutants = place, mutants
        self._found: dict[int, Found] = {}
        self._running: dict[int, tuple[int, float]] = {}

    def run(self) -> list[Found]:
        waiting = list(range(len(self._mutants)))
        while waiting or self._running:
            while waiting and len(self._running) < AT_ONCE:
                self._start(waiting.pop(0))
            time.sleep(0.02)
            for number, (pid, began_s) in list(self._running.items()):
                if os.waitpid(pid, os.WNOHANG)[0]:
                    self._finish(number, _read(self._folder(number)))
                elif time.monotonic() - began_s > REAL_S:
                    self._kill(pid)
                    self._finish(number, Found([], f"verify did not end within {REAL_S:g} s"))
        return [self._found[number] for number in range(len(self._mutants))]

    def end(self) -> None:
        for pid, _ in self._running.values():
            self._kill(pid)

    def _start(self, number: int) -> None:
        mutant, folder = self._mutants[number], self._folder(number)
        try:
            copy_library(folder, mutant)
        except ValueError as error:
            self._found[number] = Found([], str(error))
            return
        self._running[number] = (_start(folder, mutant), time.monotonic())

    def _finish(self, number: int, found: Found) -> None:
        self._found[number] = found
        del self._running[number]
        shutil.rmtree(self._folder(number))

    def _folder(self, number: int) -> Path:
        return self._place / str(number)

    def _kill(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def import_heavy() -> None:
    assert not any(name.partition(".")[0] in ("simcluster", "simcluster_backends") for name in sys.modules), (
        "the copy comes first"
    )
    for name in _HEAVY:
        importlib.import_module(name)
    torch = importlib.import_module("torch")
    # Creating the first optimizer and the first validator imports modules, which takes a second:
    # do it before forking.
    torch.optim.SGD([torch.zeros(1)], lr=1.0)
    importlib.import_module("pydantic").TypeAdapter(int)


def copy_library(folder: Path, mutant: Mutant | None) -> None:
    """Copy the library into *folder*, changed by *mutant* if that is not None.

    Raise ValueError if a text that the mutant changes does not occur exactly once.
    """
    for package in ("simcluster", "backends", "topologies", "experiments"):
        if not (folder / package).exists():
            # Include the compiled files.
            shutil.copytree(ROOT / package, folder / package, copy_function=os.symlink)
    if mutant is None:
        return
    file = folder / mutant.file
    text = mutant.put_into(file.read_text(encoding="utf-8"))
    file.unlink()
    file.write_text(text, encoding="utf-8")


def _start(folder: Path, mutant: Mutant) -> int:
    """Start a process that verifies the copy in *folder*. Return its process id."""
    pid = os.fork()
    if pid:
        return pid
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (PROCESSOR_S, PROCESSOR_S + 1))
        (folder / "found.json").write_text(json.dumps(_verify(folder, mutant)))
    except BaseException:
        with suppress(OSError):
            (folder / "trouble.txt").write_text(traceback.format_exc())
    finally:
        os._exit(0)


def _verify(folder: Path, mutant: Mutant) -> list[list[str]]:
    sys.path[:0] = [str(folder), str(folder / "backends")]
    verify = importlib.import_module("simcluster.lab.verify")
    assert str(verify.__file__).startswith(str(folder)), verify.__file__
    said = verify.verify(mutant.algorithm, **mutant.options)
    return [[check.name, check.reason] for check in said.failed]


def _read(folder: Path) -> Found:
    if (folder / "found.json").is_file():
        return Found(json.loads((folder / "found.json").read_text()))
    trouble = folder / "trouble.txt"
    return Found([], trouble.read_text() if trouble.is_file() else f"it died, or computed for {PROCESSOR_S} s")
