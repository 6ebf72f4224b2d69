"""Makes the runs of a paper in folders that go away, through `simcluster.run` and `simcluster.sweep`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import simcluster
from simcluster import Run
from simcluster.results import Sweep

Setting = TypeVar("Setting")


class Lab:
    """*full*: the setting of the page; otherwise the short one of the tests."""

    def __init__(self, folder: Path, full: bool) -> None:
        self.full = full
        self._folder, self._runs = folder, 0

    def pick(self, short: Setting, full: Setting) -> Setting:
        """The *short* setting, or the *full* one."""
        return full if self.full else short

    def run(self, **keys: Any) -> Run:
        """A run of an experiment with these *keys*: topology, algorithm, workload, stop, seed, numerics."""
        return simcluster.run(**keys, out=self._next(), report=False)

    def sweep(self, experiment: dict[str, Any], values: dict[str, Any], **how: Any) -> Sweep:
        """The *experiment*, its keys, at all *values*, in this process's turn: papers run beside each other already."""
        return simcluster.sweep(experiment, values, **{"jobs": 1, **how}, out=self._next(), report=False)

    def _next(self) -> Path:
        self._runs += 1
        return self._folder / str(self._runs)


@contextmanager
def lab(full: bool) -> Iterator[Lab]:
    """A lab for one paper, whose folders are gone behind it."""
    with tempfile.TemporaryDirectory(prefix="papers-") as folder:
        yield Lab(Path(folder), full)


def values(run: Run, name: str, node: str | None = None) -> list[float]:
    """What was recorded as *name*, by one *node* or all, in the order of time."""
    return [value for _, value in curve(run, name, node)]


def curve(run: Run, name: str, node: str | None = None) -> list[tuple[float, float]]:
    """(seconds, value) of what was recorded as *name*, by one *node* or all."""
    table = run.metrics[run.metrics["name"] == name]
    if node is not None:
        table = table[table["node"] == node]
    return list(zip(table["time_s"].tolist(), table["value"].tolist(), strict=True))
