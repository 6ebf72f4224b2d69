"""The engines that run the points of a sweep: local processes, Dask, Slurm.

`engine` is a context manager that yields a function. This function takes calls of `run_point` and
yields (number of the call, error or None) for each, in the order of completion. A call without an
error is complete. If a worker dies, only the call that it ran has an error.
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
from typing import Any

from simcluster.backend import simulator
from simcluster.errors import UsageError
from simcluster.lab.sweeps.points import run_point
from simcluster.lab.sweeps.slurm import refuse_twice, run_on_slurm
from simcluster.process.installed import install_extra
from simcluster.process.interrupts import CtrlC
from simcluster.process.intra_op import usable_cores
from simcluster.process.signals import kill
from simcluster.process.starting import way_to_start

Call = tuple[Any, ...]
"""The arguments of `run_point`."""

Outcomes = Generator[tuple[int, str | None], None, None]
Engine = Callable[[Sequence[Call]], Outcomes]

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
"""Modules that most points import: the fork server imports them once, before it forks workers."""

TRIES = 2
"""Attempts per call: when one worker dies, the pool also fails the calls of all other workers."""


@contextmanager
def engine(name: str, jobs: int, logs: Path) -> Iterator[Engine]:
    """Yield the engine called *name*, with *jobs* workers.

    The name is "local", "dask", "dask=tcp://host:8786" or "slurm". Raise UsageError if there is no
    such engine, or if it is not installed or does not answer.
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
        raise UsageError("--engine", repr(name), "local, dask, dask=ADDRESS or slurm")


def checked_jobs(jobs: int | None) -> int:
    """Return *jobs*, or the number of cores if None. Raise UsageError for an invalid number."""
    if jobs is not None and not 1 <= jobs <= MOST_JOBS:
        raise UsageError("--jobs", str(jobs), f"1 to {MOST_JOBS}")
    return jobs or usable_cores()


def _local(calls: Sequence[Call], jobs: int) -> Outcomes:
    if jobs == 1:
        for number, call in enumerate(calls):
            run_point(*call)
            yield number, None
        return
    tries = dict.fromkeys(range(len(calls)), 0)
    while tries:
        # A broken pool does not say which call broke it. So each call that was in flight runs
        # again, alone: if the pool breaks again, this call is the culprit.
        suspects = [number for number, tried in tries.items() if tried]
        batch = suspects[:1] or list(tries)
        for number, error in _pool([(number, calls[number]) for number in batch], 1 if suspects else jobs):
            tries[number] += 1
            if error is None or tries[number] == TRIES:
                del tries[number]
                yield number, error


def _pool(calls: Sequence[tuple[int, Call]], jobs: int) -> Outcomes:
    """Run *calls* until all are done or the pool breaks.

    If the pool breaks, report the calls in flight as DIED.
    """
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
                # Do not wait for the points in flight: the next run of the sweep repeats them.
                process.kill()
            raise
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def start_fork_server() -> None:
    """Start the fork server so that neither it nor its workers ever receive Ctrl-C."""
    forkserver.set_forkserver_preload(PRELOADED)
    resource_tracker.ensure_running()  # This comes first, since it unblocks SIGINT.
    with _main_hidden(), _without_ctrl_c():
        forkserver.ensure_running()


@contextmanager
def _without_ctrl_c() -> Iterator[None]:
    """Block Ctrl-C: processes that start meanwhile never receive it.

    This process receives a pending Ctrl-C at the end of the block.
    """
    if sys.platform == "win32":
        yield  # Windows cannot block Ctrl-C, which reaches the workers too and ends them.
    else:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _main_hidden() -> Iterator[None]:
    """Hide the main module while workers start.

    Otherwise workers would import the user's script as their main module. They do not need it, and
    without a main guard, the script would start another sweep in each worker.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _kill_fork_server() -> None:
    """Kill the fork server.

    This also ends a worker that is starting, whose pid is not known yet.
    """
    pid = getattr(forkserver._forkserver, "_forkserver_pid", None)
    if pid is not None:
        with suppress(ProcessLookupError):
            kill(pid)


def _begin() -> None:
    """Import the modules that points need; end this worker when its parent ends, even if killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "a worker has a parent"

    def end_with_it() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=end_with_it, daemon=True).start()
    from simcluster.experiment import node, run  # noqa: F401
    from simcluster.experiment.read import read  # noqa: F401

    # Exclude imported objects from collection: it would write to, and so copy, the pages that
    # workers share.
    gc.freeze()
    gc.enable()


def _said(error: BaseException | None) -> str | None:
    return f"{type(error).__name__}: {error}" if error is not None else None


@contextmanager
def _dask(jobs: int, address: str) -> Iterator[Engine]:
    try:
        from distributed import Client, LocalCluster, as_completed
    except ImportError:
        raise UsageError("--engine", "dask", f"the extra: {install_extra('dask')}") from None

    with ExitStack() as stack:
        cluster = address or stack.enter_context(
            LocalCluster(n_workers=jobs, threads_per_worker=1, dashboard_address=None, host="127.0.0.1")
        )
        try:
            client = stack.enter_context(Client(cluster))
        except (OSError, ValueError):
            expected = "the address of a Dask scheduler that answers, such as dask=tcp://127.0.0.1:8786"
            raise UsageError("--engine", f"dask={address}", expected) from None

        def run(calls: Sequence[Call]) -> Outcomes:
            futures = [client.submit(run_point, *call, pure=False) for call in calls]
            numbers = {future.key: number for number, future in enumerate(futures)}
            for future in as_completed(futures):
                yield numbers[future.key], _said(future.exception())

        yield run
