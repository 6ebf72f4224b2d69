"""The workers and their ranks: a state machine on the caller's clock.

Workers get ranks in the order of registration; `begin` replaces them with the order of the run's
list. While an epoch runs, no rank changes: a lost worker keeps its rank and gets it again when it
returns, and a new worker waits for the next epoch. Ranks also survive between epochs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum


class State(StrEnum):
    """A worker's state.

    An EXPECTED worker belongs to the epoch but has never registered. A WAITING worker is present
    but does not belong to the epoch.
    """

    EXPECTED = "expected"
    ALIVE = "alive"
    WAITING = "waiting"
    LOST = "lost"
    LEFT = "left"


PRESENT = (State.ALIVE, State.WAITING)


@dataclass(frozen=True)
class RegisteredWorker:
    """A worker. *heard_s* is the time of its last sign of life; its peers reach it at *address*.

    *rank* is None until the worker has one.
    """

    name: str
    rank: int | None
    state: State
    heard_s: float
    address: str = ""


@dataclass
class WorkerMembership:
    """The workers by name. A worker that is silent for more than *dead_s* is lost.

    *epoch* counts the runs so far.
    """

    dead_s: float
    epoch: int = 0
    running: bool = False
    workers: dict[str, RegisteredWorker] = field(default_factory=dict)

    def register(self, name: str, now_s: float, address: str = "") -> RegisteredWorker:
        """Register *name* as present. A worker that returns keeps its rank."""
        known = self.workers.get(name)
        rank = known.rank if known is not None else None
        if rank is None and not self.running:
            rank = self._free_rank()
        state = State.WAITING if self.running and rank is None else State.ALIVE
        worker = RegisteredWorker(name, rank, state, now_s, address or (known.address if known else ""))
        self.workers[name] = worker
        return worker

    def heartbeat(self, name: str, now_s: float) -> bool:
        """Note a sign of life of *name*; return False if it is not present and must register."""
        worker = self.workers.get(name)
        if worker is None or worker.state not in PRESENT:
            return False
        self.workers[name] = replace(worker, heard_s=max(now_s, worker.heard_s))
        return True

    def gone(self, name: str, state: State) -> bool:
        """Set *state*, LOST or LEFT, for *name*; return False if it is unknown or already gone."""
        worker = self.workers.get(name)
        if worker is None or worker.state in (State.LOST, State.LEFT):
            return False
        self.workers[name] = replace(worker, state=state)
        return True

    def takes_part(self, name: str) -> bool:
        """Return whether *name* is present with a rank in the running epoch."""
        worker = self.workers.get(name)
        return self.running and worker is not None and worker.state is State.ALIVE

    def expire(self, now_s: float) -> list[str]:
        """Mark workers that have been silent for too long as lost; return their names."""
        late = [w.name for w in self.workers.values() if w.state in PRESENT and now_s - w.heard_s > self.dead_s]
        for name in late:
            self.gone(name, State.LOST)
        return late

    def begin(self, now_s: float, names: Sequence[str]) -> dict[str, int]:
        """Begin an epoch of *names* in rank order; return their ranks.

        Present workers that are not in *names* wait. The absent workers in *names* are expected,
        with their rank, until they register.
        """
        ranks = {name: rank for rank, name in enumerate(names)}
        present = {name: worker for name, worker in self.workers.items() if worker.state in PRESENT}
        self.workers = {
            name: replace(present[name], rank=rank, state=State.ALIVE)
            if name in present
            else RegisteredWorker(name, rank, State.EXPECTED, now_s)
            for name, rank in ranks.items()
        }
        for name, worker in present.items():
            if name not in ranks:
                self.workers[name] = replace(worker, rank=None, state=State.WAITING)
        self.epoch, self.running = self.epoch + 1, True
        return ranks

    def end(self) -> None:
        """End the epoch: waiting workers get ranks after the others.

        Workers that are gone stay known until the next `begin`.
        """
        self.running = False
        for worker in list(self.workers.values()):
            if worker.state is State.WAITING:
                self.workers[worker.name] = replace(worker, state=State.ALIVE, rank=self._free_rank())

    def alive(self) -> list[RegisteredWorker]:
        """Return the present workers that have a rank, by rank."""
        found = [worker for worker in self.workers.values() if worker.state is State.ALIVE]
        return sorted(found, key=lambda worker: worker.rank if worker.rank is not None else -1)

    def _free_rank(self) -> int:
        """Return the lowest rank above all others. Gaps are left to workers that may return."""
        return max((worker.rank for worker in self.workers.values() if worker.rank is not None), default=-1) + 1
