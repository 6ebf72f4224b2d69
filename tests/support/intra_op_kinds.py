"""`OMP_NUM_THREADS=3 python -m tests.support.intra_op_kinds FOLDER`: kernel threads by kind of thread, as JSON.

It runs in a process of its own, since a thread's first number is the process's.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from simcluster_backends.common.device import DeviceThread
from simcluster_backends.sim import run_cluster
from simcluster_backends.sim.loop.workers import Workers
from simcluster_backends.sockets import generate_key, write_key

import simcluster
from simcluster.job import ClusterJob
from simcluster.lab.replays.run import replay
from simcluster.lab.verify import suite
from simcluster.lab.verify.verdict import Check
from simcluster.process.intra_op import one_thread, use_one_thread
from simcluster.results import Run
from simcluster.topology import star
from tests.support.socket_runs import free_port, hand_started
from tests.support.thread_counts import experiment, most_threads, program


def elsewhere(work: Callable[[], Any]) -> Any:
    """Return the result of *work* in a new thread."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    return found[0]


def noted(run: Run) -> dict[str, int]:
    """The largest number of all nodes, by where it was."""
    return {str(name): int(value) for name, value in run.metrics.groupby("name")["value"].max().items()}


@one_thread()
def workers() -> int:
    crew = Workers(2)
    piece = crew.begin("owner", most_threads, hand_over=True)
    piece.wait()
    crew.close()
    return piece.result


@one_thread()
def device() -> int:
    one = DeviceThread("device")
    seen = one.submit(most_threads).result(60.0)
    one.close(60.0)
    return seen


def simulated() -> int:
    job = ClusterJob(["a"], "{}", program=f"{program.__module__}:program", topology=star(1), options={"threads": 1})
    return int(max(metric.value for metric in run_cluster(job).nodes[0].metrics))


def by_hand(folder: Path) -> Run:
    """A run whose node was started by hand, as it finds itself."""
    key, meeting = folder / "key", f"127.0.0.1:{free_port()}"
    write_key(key, generate_key())
    with hand_started("node", meeting, key):
        options = {"rendezvous": meeting, "key_file": str(key)}
        return simcluster.run(experiment(), backend="sockets", out=folder / "hand", report=False, options=options)


def verified() -> int:
    def ask(subject: object) -> Iterator[Check]:
        yield Check("threads", "holds", str(most_threads()))

    suite.CHECKS = {"threads": ask}  # type: ignore[misc]
    return int(simcluster.verify("all_reduce_dp", backend="sim", quick=True).checks[0].reason)


def swept(folder: Path) -> dict[str, int]:
    sweep = simcluster.sweep(experiment(), seeds=2, out=folder / "sweep", jobs=2, report=False)
    return noted(sweep.runs[0])


@one_thread()
def overridden() -> int:
    """In a thread that computes, after another one has changed the process's number."""

    def work() -> int:
        use_one_thread()
        elsewhere(lambda: torch.set_num_threads(3))
        torch.ones(100_000).exp()  # asks torch for its number
        return most_threads()

    return int(elsewhere(work))


def restored() -> list[int]:
    """Before contexts of two threads that overlap; after them in this thread, in the other one, and in a new one."""
    is_in, may_end = threading.Event(), threading.Event()
    found = [torch.get_num_threads()]

    def other() -> None:
        with one_thread():
            is_in.set()
            may_end.wait()
        found.append(most_threads())

    thread = threading.Thread(target=other)
    with one_thread():
        thread.start()
        is_in.wait()
    may_end.set()
    thread.join()
    return [*found, most_threads(), elsewhere(torch.get_num_threads)]


def kinds(folder: Path) -> dict[str, Any]:
    hand = by_hand(folder)
    return {
        "a new thread": elsewhere(most_threads),
        "the simulator's loop": elsewhere(simulated),
        "the simulator's workers": workers(),
        "a simulation in a caller's thread": elsewhere(
            lambda: noted(simcluster.run(experiment(), out=folder / "sim", options={"threads": 2}, report=False))
        ),
        "a node started by hand": noted(hand),
        "a replay": elsewhere(lambda: noted(replay(hand, report=False).run)),
        "the torch backend's device": device(),
        "the torch backend": elsewhere(
            lambda: noted(simcluster.run(experiment(), backend="torch", out=folder / "torch", report=False))
        ),
        "a sweep": swept(folder),
        "verify": elsewhere(verified),
        "another thread's number": overridden(),
        "restored": restored(),
    }


if __name__ == "__main__":
    print(json.dumps(kinds(Path(sys.argv[1]))))
