"""Tries mutants: each in a process of its own, with a copy of the library in which one text is another.

It imports nothing of the library: what a process imports is to be the copy. The processes are forks of one that has
imported the heavy packages.
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
"""Processor time that a trial may use, whatever else the machine does; one needs about 3."""
REAL_S = 400.0
"""For a trial that waits and does not compute."""
AT_ONCE = 2

_HEAVY = (
    "torch", "torch.utils.data", "torch.utils.flop_counter", "torch.nn.utils", "numpy", "networkx", "pydantic",
    "annotated_types", "msgspec", "simpy", "google_crc32c", "yaml", "safetensors.torch", "pandas", "importlib.metadata",
)  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """*defect* number so-and-so of the list: in *file*, *old*, which is there once, becomes *new*.

    *more* is another (old, new) in the same file. *algorithm* shows it: its *check* must fail, in the simulator, with
    *settings* and on *nodes*.
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

    @property
    def options(self) -> dict[str, Any]:
        """What shows it, beside the algorithm: of `verify`."""
        shown = {"settings": self.settings, "nodes": self.nodes, "only": [self.check]}
        return {"backend": "sim", "quick": True, **shown}

    def put_into(self, text: str) -> str:
        """*text* with the defect. Raises ValueError if it cannot be put there."""
        for old, new in [(self.old, self.new), *([self.more] if self.more else [])]:
            if text.count(old) != 1 or old == new:
                raise ValueError(f"{self.file} has {text.count(old)} times, not once: {old!r}")
            text = text.replace(old, new)
        return text


@dataclass(frozen=True)
class Found:
    """What `verify` said: the lines that fail, as [name, reason], or why it said nothing."""

    failed: list[list[str]]
    trouble: str = ""

    @property
    def caught(self) -> bool:
        return bool(self.failed) and not self.trouble


def try_all(mutants: Sequence[Mutant]) -> list[Found]:
    """What is found of each."""
    import_heavy()
    with tempfile.TemporaryDirectory(prefix="mutants-") as place:
        trials = Trials(Path(place), mutants)
        try:
            return trials.run()
        finally:
            trials.end()


class Trials:
    """Some processes at once, each in a folder of its own below *place*."""

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
    torch.optim.SGD([torch.zeros(1)], lr=1.0)  # the first optimizer, and the first validator, import for a second
    importlib.import_module("pydantic").TypeAdapter(int)


def copy_library(folder: Path, mutant: Mutant | None) -> None:
    """A copy of the library in *folder*, with *mutant* in it. Raises ValueError if that cannot be put there."""
    for package in ("simcluster", "backends", "topologies", "experiments"):
        if not (folder / package).exists():
            shutil.copytree(ROOT / package, folder / package, copy_function=os.symlink)  # what is compiled, too
    if mutant is None:
        return
    file = folder / mutant.file
    text = mutant.put_into(file.read_text(encoding="utf-8"))
    file.unlink()
    file.write_text(text, encoding="utf-8")


def _start(folder: Path, mutant: Mutant) -> int:
    """A process that verifies the copy in *folder*, by its id."""
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
