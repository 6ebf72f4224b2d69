"""The desk, which serves all calls. One lock guards the membership and the board of the run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from fastapi import HTTPException

from simcluster.watching.board import RunInfo, Telemetry, TelemetryBoard, plain
from simcluster_backends.sockets.coordinator.membership import PRESENT, State, WorkerMembership
from simcluster_backends.sockets.coordinator.status import prometheus, status

MOST_WORKERS = 4096
_NOT_THERE = {
    State.EXPECTED: "is expected, but has not come yet",
    State.LOST: "is lost",
    State.LEFT: "has already left or ended",
}


class CallRefused(HTTPException):
    """A call that cannot be served, with the HTTP status and the reason."""


class CoordinatorDesk:
    """The calls that one coordinator serves, from any thread.

    *now* is a monotonic clock in seconds. A worker, or the launcher of a run, is lost after
    *dead_s* without a call.
    """

    def __init__(self, dead_s: float, now: Callable[[], float]) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._membership = WorkerMembership(dead_s)
        self._board: TelemetryBoard | None = None
        self._report = ""  # the page of the run, once it has ended
        self._told_s = 0.0  # when a launcher last called
        self._leaving: set[str] = set()  # workers that were asked to leave and are still there

    # workers

    def register(self, name: str, address: str) -> dict[str, Any]:
        """Register *name*; return its rank, if it has one, and the heartbeat interval. Raise
        CallRefused if there are too many workers.
        """
        with self._lock:
            membership = self._alive()
            if name not in membership.workers and len(membership.workers) >= MOST_WORKERS:
                raise CallRefused(409, "the limit of workers is reached")
            self._leaving.discard(name)
            worker = membership.register(name, self._now(), address)
            return {"name": name, "rank": worker.rank, "state": worker.state.value, **self._terms()}

    def heartbeat(self, name: str) -> dict[str, Any]:
        """Note a heartbeat of *name*; return whether it is known. An unknown worker must register.

        The answer's "leave" is true if the worker was asked to leave and takes part in no run.
        """
        with self._lock:
            membership = self._alive()
            known = membership.heartbeat(name, self._now())
            asked = name in self._leaving and not membership.takes_part(name)
            return {"known": known, "leave": asked, **self._terms()}

    def leave(self, name: str) -> dict[str, Any]:
        """Remove *name* immediately: the worker itself reports that it is gone."""
        with self._lock:
            self._leaving.discard(name)
            return {"left": self._alive().gone(name, State.LEFT), **self._terms()}

    def ask_to_leave(self, name: str) -> dict[str, Any]:
        """Ask *name* to leave, through its run's launcher or with the answer to its next heartbeat.

        `status` shows when it has left. Raise CallRefused if no such worker is present.
        """
        with self._lock:
            worker = self._alive().workers.get(name)
            if worker is None:
                raise CallRefused(404, f"no worker is called {name}: GET /status has their names")
            if worker.state not in PRESENT:
                raise CallRefused(409, f"{name} {_NOT_THERE[worker.state]}")
            self._leaving.add(name)
            return {"left": False, "leaving": True, **self._terms()}

    # called by launchers

    def begin(self, run: RunInfo) -> dict[str, Any]:
        """Begin *run*. The order of its nodes decides the ranks until the run ends."""
        with self._lock:
            ranks = self._alive().begin(self._now(), run.nodes)
            self._board = TelemetryBoard(run)
            self._told_s = self._now()
            self._report = ""
            return {"ranks": ranks, **self._terms()}

    def telemetry(self, telemetry: Telemetry) -> dict[str, Any]:
        """Store the run's progress, which counts as its nodes' heartbeats.

        Return the nodes that the launcher must ask to leave.
        """
        with self._lock:
            membership, now_s = self._alive(), self._now()
            self._told_s = now_s
            for node in telemetry.nodes:
                known = membership.workers.get(node.name)
                if known is None or node.state == "expected":
                    continue
                if node.state == "lost" and node.name not in self._leaving:
                    membership.gone(node.name, State.LOST)
                elif node.state in ("lost", "ended"):
                    self._leaving.discard(node.name)
                    membership.gone(node.name, State.LEFT)
                elif known.state is not State.ALIVE:
                    membership.register(node.name, now_s)
                else:
                    membership.heartbeat(node.name, now_s)
            if self._board is not None:
                self._board.add(telemetry)
            leaving = sorted(name for name in self._leaving if membership.takes_part(name))
            return {"leave": leaving, **self._terms()}

    def end(self, error: str = "") -> dict[str, Any]:
        with self._lock:
            self._alive().end()
            if self._board is not None:
                self._board.end(error)
            return self._terms()

    def take_report(self, page: str) -> dict[str, Any]:
        """Keep the report of the last run. Raise CallRefused unless that run has ended."""
        with self._lock:
            self._alive()
            if self._board is None or self._board.goes_on:
                raise CallRefused(409, "a report is taken once its run has ended")
            self._report = page
            return self._terms()

    # queries

    def ready(self, min_workers: int) -> dict[str, Any]:
        """Return the present workers by rank, whether they are enough, and the run in progress."""
        with self._lock:
            membership, board = self._alive(), self._board
            alive, run = membership.alive(), None
            if board is not None and board.goes_on:
                run = board.run.model_dump(exclude={"config", "folder"}) | {"state": board.state}
            workers = [{"name": w.name, "worker_id": w.name, "rank": w.rank, "address": w.address} for w in alive]
            return {
                "ready": len(alive) >= min_workers,
                "active_workers": len(alive),
                "min_workers": min_workers,
                "workers": workers,
                "run": run,
                **self._terms(),
            }

    def status(self) -> dict[str, Any]:
        with self._lock:
            found = status(self._alive(), self._board, self._now())
            return found | {"has_report": bool(self._report)}

    def config(self) -> dict[str, Any]:
        """Return the experiment of the run and the directory of its results, as its launcher reported them."""
        with self._lock:
            run = self._board.run if self._board is not None else None
            return {"config": run.config if run else "", "folder": run.folder if run else ""}

    def report(self) -> str:
        """Return the report of the last run. Raise CallRefused if there is none."""
        with self._lock:
            if not self._report:
                raise CallRefused(404, "no report of a run that has ended")
            return self._report

    def history(self, after_s: float) -> list[dict[str, Any]]:
        """Return the stored moments of the run after *after_s* of the run's clock."""
        with self._lock:
            kept = self._board.history if self._board is not None else []
            found: list[dict[str, Any]] = plain([moment for moment in kept if moment["elapsed_s"] > after_s])
            return found

    def prometheus(self) -> bytes:
        return prometheus(self.status())

    def _alive(self) -> WorkerMembership:
        """Drop silent workers, and end a run with a silent launcher. Return the membership."""
        now_s, board = self._now(), self._board
        self._membership.expire(now_s)
        if board is not None and board.goes_on and now_s - self._told_s > self._membership.dead_s:
            board.end(f"its launcher was silent for {self._membership.dead_s:g} s")
            self._membership.end()
        return self._membership

    def _terms(self) -> dict[str, Any]:
        membership = self._membership
        return {
            "epoch": membership.epoch,
            "running": membership.running,
            "dead_s": membership.dead_s,
            "heartbeat_s": membership.dead_s / 5,
        }
