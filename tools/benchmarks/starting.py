"""The CPU time of commands relative to `import torch`. Fresh processes of both alternate."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

SHORT = ("run", "quickstart", "--set", "stop.steps=2")
COMMANDS = {
    "list algorithms": ("list", "algorithms"),
    "quickstart, 2 steps": SHORT,
    "the same, numerics: none": (*SHORT, "--set", "numerics=none"),
    "the same, on sockets": (*SHORT, "--backend", "sockets"),
    "the same, on torch": (*SHORT, "--backend", "torch"),
}


@dataclass(frozen=True)
class Start:
    """The median CPU time of a command, and the median of its ratios to `import torch`."""

    cpu_s: float
    ratio: float


def measure(rounds: int) -> Iterator[Start]:
    """Yield the results of `import torch`, then of each of COMMANDS. The first round does not
    count.
    """
    taken: dict[str, list[float]] = {"import torch": [], **{name: [] for name in COMMANDS}}
    for number in range(rounds + 1):
        with tempfile.TemporaryDirectory() as folder:
            order = list(taken) if number % 2 else list(reversed(taken))
            for place, name in enumerate(order):
                cpu_s = _cpu_s(name, Path(folder) / str(place))
                if number:
                    taken[name].append(cpu_s)
    for seconds in taken.values():
        ratios = [a / b for a, b in zip(seconds, taken["import torch"], strict=True)]
        yield Start(statistics.median(seconds), statistics.median(ratios))


def _cpu_s(name: str, folder: Path) -> float:
    """Return the CPU seconds of a new process that runs the command *name*."""
    if name == "import torch":
        arguments = ["-c", "import torch"]
    else:
        arguments = ["-m", "simcluster", *COMMANDS[name]]
        if "run" in arguments:
            arguments += ["--out", str(folder)]
    before = psutil.Process().cpu_times()
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
    after = psutil.Process().cpu_times()
    return after.children_user + after.children_system - before.children_user - before.children_system
