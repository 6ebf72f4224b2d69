"""Where the points of a sweep run: local processes, Dask, Slurm. One small function for each.

An engine is a context manager that yields a function from calls to (number, error or None): one per call, in the order
of completion. A call that ends without an error has done its work; a worker that dies is an error of its call alone.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from simcluster.backend import simulator
from simcluster.errors import Problem, UsageError
from simcluster.lab.sweeps.points import run_point
from simcluster.lab.sweeps.slurm import refuse_twice, run_on_slurm
from simcluster.process.installed import install_extra
from simcluster.process.interrupts import CtrlC
from simcluster.process.intra_op import usable_cores
from simcluster.process.signals import kill
from simcluster.process.starting import way_to_start

Call: TypeAlias = tuple[Any, ...]
"""The arguments of `run_point`."""

Outcomes: TypeAlias = Generator[tuple[int, str | None], None, None]
Engine: TypeAlias = Callable[[Sequence[Call]], Outcomes]

DIED = "its process died"
MOST_JOBS = 1024
PRELOADED = [
    "simcluster.lab.sweeps.uncollected",
    "simcluster.lab.sweeps.orphans",
    "simcluster.experiment.node",
    "simcluster.experiment.run",
    simulator().module,
    "pyarrow.parquet",
]
"""Modules that points import, in the simulator at least: once, before the workers are forked."""

TRIES = 2
"""Attempts per call: a process that dies may have been taken down by another one."""


@contextmanager
def engine(name: str, jobs: int, logs: Path) -> Iterator[Engine]:
    """Yield the engine called *name*: "local", "dask", "dask=tcp://host:8786" or "slurm", with *jobs* workers.

    Raise UsageError if there is none, it is not installed, or it does not answer.
    """
    kind, _, address = name.partition("=")
    if kind == "local" and not address:
        yield lambda calls: _local(calls, jobs)
    elif kind == "dask":
        with _dask(jobs, address) as found:
            yield found
    elif kind == "slurm" and not address:
        refuse_twice(logs)
        yield lambda calls: run_on_slurm(calls, jobs, logs)
    else:
        raise UsageError(Problem("--engine", repr(name), "local, dask, dask=ADDRESS or slurm"))


def checked_jobs(jobs: int | None) -> int:
    """Return the number of processes, by default that of cores. Raise UsageError if *jobs* is not a valid one."""
    if jobs is not None and not 1 <= jobs <= MOST_JOBS:
        raise UsageError(Problem("--jobs", str(jobs), f"1 to {MOST_JOBS}"))
    return jobs or usable_cores()


def _local(calls: Sequence[Call], jobs: int) -> Outcomes:
    if jobs == 1:
        for number, call in enumerate(calls):
            run_point(*call)
            yield number, None
        return
    tries = dict.fromkeys(range(len(calls)), 0)
    while tries:
        # A broken pool does not say which call broke it; a call that runs alone in a pool that breaks is the one.
        suspects = [number for number, tried in tries.items() if tried]
        batch = suspects[:1] or list(tries)
        for number, error in _pool([(number, calls[number]) for number in batch], 1 if suspects else jobs):
            tries[number] += 1
            if error is None or tries[number] == TRIES:
                del tries[number]
                yield number, error


def _pool(calls: Sequence[tuple[int, Call]], jobs: int) -> Outcomes:
    """Run calls until all are done or the pool breaks; then all calls in flight count as died."""
    forks = way_to_start() == "fork"
    context = multiprocessing.get_context("forkserver" if forks else "spawn")
    if forks:
        start_fork_server()
    else:
        resource_tracker.ensure_running()
    waiting = list(reversed(calls))
    under_way: dict[Future[None], int] = {}
    with ProcessPoolExecutor(min(jobs, len(calls)), context, initializer=_begin) as pool:
        try:
            while waiting or under_way:
                while waiting and len(under_way) < jobs:
                    number, call = waiting.pop()
                    with _main_hidden(), CtrlC(_kill_fork_server) if forks else _without_ctrl_c():
                        under_way[pool.submit(run_point, *call)] = number
                done, _ = wait(under_way, return_when=FIRST_COMPLETED)
                for future in sorted(done, key=lambda future: under_way[future]):
                    number = under_way.pop(future)
                    error = future.exception()
                    if isinstance(error, BrokenProcessPool):
                        under_way[future] = number
                        raise error
                    yield number, _said(error)
        except BrokenProcessPool:
            for number in sorted(under_way.values()):
                yield number, DIED
        except (KeyboardInterrupt, GeneratorExit):
            for process in list((pool._processes or {}).values()):
                process.kill()  # its point would be waited for; the next sweep runs it again
            raise
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def start_fork_server() -> None:
    """Start the fork server, out of reach of Ctrl-C: neither it nor its workers ever receive one."""
    forkserver.set_forkserver_preload(PRELOADED)
    resource_tracker.ensure_running()  # which unblocks SIGINT once it is started
    with _main_hidden(), _without_ctrl_c():
        forkserver.ensure_running()


@contextmanager
def _without_ctrl_c() -> Iterator[None]:
    """Hold Ctrl-C back: processes that are started meanwhile never receive one, and this one does at the end."""
    if sys.platform == "win32":
        yield  # there it reaches them, and they end with it
    else:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _main_hidden() -> Iterator[None]:
    """Hide the main module while workers start. They would import the sweeping script, which they do not need: a script
    that sweeps when imported would start a sweep in each of them.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _kill_fork_server() -> None:
    """Kill the fork server: a worker just being started is not known yet, and the server takes seconds to start one."""
    pid = getattr(forkserver._forkserver, "_forkserver_pid", None)
    if pid is not None:
        with suppress(ProcessLookupError):
            kill(pid)


def _begin() -> None:
    """Set up a new worker: it ends when its parent does, even if that is killed, and imports what points need."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "a worker has a parent"

    def end_with_it() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=end_with_it, daemon=True).start()
    from simcluster.experiment import node, run  # noqa: F401
    from simcluster.experiment.read import read  # noqa: F401

    gc.freeze()  # what is imported stays: a search for garbage would copy the pages that workers share
    gc.enable()


def _said(error: BaseException | None) -> str | None:
    return f"{type(error).__name__}: {error}" if error is not None else None


@contextmanager
def _dask(jobs: int, address: str) -> Iterator[Engine]:
    try:
        from distributed import Client, LocalCluster, as_completed
    except ImportError:
        raise UsageError(Problem("--engine", "dask", f"the extra: {install_extra('dask')}")) from None

    with ExitStack() as stack:
        cluster = address or stack.enter_context(
            LocalCluster(n_workers=jobs, threads_per_worker=1, dashboard_address=None, host="127.0.0.1")
        )
        try:
            client = stack.enter_context(Client(cluster))
        except (OSError, ValueError):
            expected = "the address of a Dask scheduler that answers, such as dask=tcp://127.0.0.1:8786"
            raise UsageError(Problem("--engine", f"dask={address}", expected)) from None

        def run(calls: Sequence[Call]) -> Outcomes:
            futures = [client.submit(run_point, *call, pure=False) for call in calls]
            numbers = {future.key: number for number, future in enumerate(futures)}
            for future in as_completed(futures):
                yield numbers[future.key], _said(future.exception())

        yield run
