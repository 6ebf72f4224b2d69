"""Support for scripts that start their ranks themselves.

Tutorials call `torch.multiprocessing.spawn`, or start a `Process` in a loop. The cluster has
started a process for each rank already. Each of these processes runs the script up to that point,
and then only the function of its own rank.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.context
import sys
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch.distributed as dist
import torch.multiprocessing

from simcluster.documents.own_frames import is_users

_ENDED = SimpleNamespace(
    pid=None, returncode=0, poll=lambda: 0, wait=lambda timeout=None: 0, terminate=int, kill=int, close=int
)  # fmt: skip
"""A stand-in for the process of another rank, which seems to have ended with exit code 0."""


class SpawnedRanks:
    """The ranks that the script starts, as seen in the process of *rank*, one of *size* ranks."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self.started = 0
        self.is_inside = False

    @property
    def are_over(self) -> bool:
        """Whether a process that the script starts now is a helper of a rank, not a rank."""
        return self.is_inside or (dist.is_initialized() and not self.started)

    def start(self, run: Callable[[], object]) -> None:
        """Count the start of the next rank. If it is the rank of this process, call *run*.

        Raise ValueError if the script starts more ranks than the cluster has.
        """
        self.started += 1
        if self.started > self.size:
            raise ValueError(f"the script starts more than {self.size} processes, one for each rank of the cluster")
        if self.started == self.rank + 1:
            self.is_inside = True
            run()
            self.is_inside = False

    def check(self) -> None:
        """Raise ValueError if the script has started ranks itself, but fewer than the cluster
        has.
        """
        if 0 < self.started < self.size:
            raise ValueError(f"the script starts {self.started} processes: expected {self.size}, as the cluster has")


def install_spawn(rank: int, size: int) -> SpawnedRanks:
    """Make this process act as the one that the script starts for *rank* of *size*."""
    ranks = SpawnedRanks(rank, size)

    def spawn(
        fn: Callable[..., Any], args: Sequence[Any] = (), nprocs: int = 1, join: bool = True, daemon: bool = False,
        start_method: str = "spawn",
    ) -> SimpleNamespace | None:  # fmt: skip
        """Replace torch.multiprocessing.spawn: call *fn* for the rank of this process.

        Unless *join* is true, return a context for which all ranks have ended.
        """
        if nprocs != size:
            raise ValueError(f"spawn(nprocs={nprocs}): expected {size}, one for each rank of the cluster")
        ranks.started = rank
        ranks.start(lambda: fn(rank, *args))
        ranks.started = size
        return None if join else SimpleNamespace(join=lambda *_, **__: True, pids=list)

    for name in ("torch.multiprocessing", "torch.multiprocessing.spawn"):
        sys.modules[name].spawn = sys.modules[name].start_processes = spawn  # type: ignore[attr-defined]
    contexts = [kind for name, kind in vars(multiprocessing.context).items() if name.endswith("Context")]
    for owner in (multiprocessing, torch.multiprocessing, *contexts):
        if "Process" in vars(owner):
            owner.Process = _of_script(owner.Process, ranks)
    for owner in (multiprocessing, torch.multiprocessing):
        owner.set_start_method = lambda method, force=False: None  # type: ignore[attr-defined]
    return ranks


def _of_script(real: Any, ranks: SpawnedRanks) -> Any:
    """Return a subclass of *real*, a class of processes, for the script to use.

    A process that the script starts before it has a process group is one of *ranks*.
    """

    class ScriptProcess(real):  # type: ignore[misc]
        def __new__(cls, *args: Any, **more: Any) -> Any:
            code = getattr(more.get("target"), "__code__", None)
            if cls is ScriptProcess and (code is None or not is_users(code.co_filename)):
                # The script does not start this process itself; it may be a worker of a DataLoader.
                return real(*args, **more)
            return super().__new__(cls)

        def start(self) -> None:
            if ranks.are_over:
                super().start()
            else:
                # To the script, the process seems to have ended.
                self._popen, self._sentinel = _ENDED, None
                ranks.start(self.run)

    ScriptProcess.__name__ = ScriptProcess.__qualname__ = "Process"
    return ScriptProcess
