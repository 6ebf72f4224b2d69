"""The workers and their ranks, as a state machine driven by the caller's clock.

Ranks follow the order of registration, and from `begin` on the run's own list. While an epoch runs, no rank changes: a
lost worker keeps its rank and gets it again on return; a new one waits for the next epoch. Ranks also survive between
epochs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum


class State(StrEnum):
    """A worker's state. EXPECTED: in the epoch, but never there; WAITING: there, but not in the epoch."""

    EXPECTED = "expected"
    ALIVE = "alive"
    WAITING = "waiting"
    LOST = "lost"
    LEFT = "left"


PRESENT = (State.ALIVE, State.WAITING)


@dataclass(frozen=True)
class RegisteredWorker:
    """*rank* is None while it has none; *heard_s* is the time of its last sign of life; *address* is for its peers."""

    name: str
    rank: int | None
    state: State
    heard_s: float
    address: str = ""


@dataclass
class WorkerMembership:
    """A worker that is silent for more than *dead_s* is lost. *epoch* counts the worlds so far."""

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
        """Return whether *name* is present; if not, it must register (again)."""
        worker = self.workers.get(name)
        if worker is None or worker.state not in PRESENT:
            return False
        self.workers[name] = replace(worker, heard_s=max(now_s, worker.heard_s))
        return True

    def gone(self, name: str, state: State) -> bool:
        """Mark *name* as LOST or LEFT by *state*; return whether it was neither before."""
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
        """Mark workers that were silent for too long as lost; return their names."""
        late = [w.name for w in self.workers.values() if w.state in PRESENT and now_s - w.heard_s > self.dead_s]
        for name in late:
            self.gone(name, State.LOST)
        return late

    def begin(self, now_s: float, names: Sequence[str]) -> dict[str, int]:
        """Begin an epoch of *names* in rank order; return ranks by name. Other workers that are present wait.

        Absent *names* are expected, with their rank, until they register.
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
        """End the epoch: waiting workers get ranks after the others; the next `begin` forgets those that are gone."""
        self.running = False
        for worker in list(self.workers.values()):
            if worker.state is State.WAITING:
                self.workers[worker.name] = replace(worker, state=State.ALIVE, rank=self._free_rank())

    def alive(self) -> list[RegisteredWorker]:
        """Return the present workers that have a rank, by rank."""
        found = [worker for worker in self.workers.values() if worker.state is State.ALIVE]
        return sorted(found, key=lambda worker: worker.rank if worker.rank is not None else -1)

    def _free_rank(self) -> int:
        """Return the rank after all others: no other worker fills a gap."""
        return max((worker.rank for worker in self.workers.values() if worker.rank is not None), default=-1) + 1
