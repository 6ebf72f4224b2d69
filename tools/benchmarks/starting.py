"""The cost of commands relative to `import torch`: fresh processes, interleaved, CPU time of each.

`python -m tools.benchmarks.starting` prints it.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

ROUNDS = 7
SHORT = ("run", "quickstart", "--set", "stop.steps=2")
COMMANDS = {
    "--help": ("--help",),
    "list algorithms": ("list", "algorithms"),
    "topology check": ("topology", "check", "smolcluster"),
    "quickstart, 2 steps": SHORT,
    "the same, --no-report": (*SHORT, "--no-report"),
    "the same, numerics: none": (*SHORT, "--set", "numerics=none"),
    "the same, on sockets": (*SHORT, "--backend", "sockets"),
    "the same, on torch": (*SHORT, "--backend", "torch"),
}


@dataclass(frozen=True)
class Start:
    """The CPU time of a command, the median, and the median of its ratios to `import torch`."""

    name: str
    cpu_s: float
    ratio: float


def measure(rounds: int = ROUNDS, names: Iterable[str] = COMMANDS) -> Iterator[Start]:
    """Yield the commands *names*, `import torch` first, after one round that does not count."""
    taken: dict[str, list[float]] = {"import torch": [], **{name: [] for name in names}}
    for number in range(rounds + 1):
        with tempfile.TemporaryDirectory() as folder:
            order = list(taken) if number % 2 else list(reversed(taken))
            for place, name in enumerate(order):
                cpu_s = _cpu_s(name, Path(folder) / str(place))
                if number:
                    taken[name].append(cpu_s)
    for name, seconds in taken.items():
        ratios = [a / b for a, b in zip(seconds, taken["import torch"], strict=True)]
        yield Start(name, statistics.median(seconds), statistics.median(ratios))


def _cpu_s(name: str, folder: Path) -> float:
    """Seconds of CPU that a new process takes for the command *name*, its start and its end included."""
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


def main() -> None:
    for start in measure():
        print(f"{start.name}: {start.ratio:.2f} ({start.cpu_s:.2f} s)", flush=True)


if __name__ == "__main__":
    main()
