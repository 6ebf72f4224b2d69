"""The workers and their ranks, as a state machine driven by the caller's clock.

Ranks follow the order of registration, or the run's own list. While an epoch runs, no rank changes: a lost worker keeps
its rank and gets it again on return; a new one waits for the next epoch. Ranks also survive between epochs, until
`begin` closes the gaps.
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
class Worker:
    """*rank* is None while it has none; *heard_s* is the time of its last sign of life; *address* is for its peers."""

    name: str
    rank: int | None
    state: State
    heard_s: float
    address: str = ""


@dataclass
class Membership:
    """A worker that is silent for more than *dead_s* is lost. *epoch* counts the worlds so far."""

    dead_s: float
    epoch: int = 0
    running: bool = False
    workers: dict[str, Worker] = field(default_factory=dict)

    def register(self, name: str, now_s: float, address: str = "") -> Worker:
        """Register *name* as present. A worker that returns keeps its rank."""
        known = self.workers.get(name)
        rank = known.rank if known is not None else None
        if rank is None and not self.running:
            rank = self._free_rank()
        state = State.WAITING if self.running and rank is None else State.ALIVE
        worker = Worker(name, rank, state, now_s, address or (known.address if known else ""))
        self.workers[name] = worker
        return worker

    def heartbeat(self, name: str, now_s: float) -> bool:
        """Return whether *name* is present; if not, it must register (again)."""
        worker = self.workers.get(name)
        if worker is None or worker.state not in PRESENT:
            return False
        self.workers[name] = replace(worker, heard_s=max(now_s, worker.heard_s))
        return True

    def leave(self, name: str) -> bool:
        """Mark *name* as having left; return whether it was present."""
        return self._gone(name, State.LEFT)

    def takes_part(self, name: str) -> bool:
        """Return whether *name* is present with a rank in the running epoch."""
        worker = self.workers.get(name)
        return self.running and worker is not None and worker.state is State.ALIVE

    def lose(self, name: str) -> bool:
        """Mark *name* as lost; return whether it was present."""
        return self._gone(name, State.LOST)

    def expire(self, now_s: float) -> list[str]:
        """Mark workers that were silent for too long as lost; return their names."""
        late = [w.name for w in self.workers.values() if w.state in PRESENT and now_s - w.heard_s > self.dead_s]
        for name in late:
            self.lose(name)
        return late

    def begin(self, now_s: float, names: Sequence[str] | None = None) -> dict[str, int]:
        """Begin an epoch of *names* in rank order, or else of all workers present; return ranks by name.

        Absent *names* are expected, with their rank, until they register.
        """
        if names is None:
            there = [w for w in self.workers.values() if w.state in PRESENT]
            order = {worker.name: position for position, worker in enumerate(there)}
            ranked = sorted(there, key=lambda w: (w.rank is None, w.rank if w.rank is not None else order[w.name]))
            names = [worker.name for worker in ranked]
        ranks = {name: rank for rank, name in enumerate(names)}
        others = [w for w in self.workers.values() if w.name not in ranks and w.state in PRESENT]
        world = {}
        for name, rank in ranks.items():
            known = self.workers.get(name)
            if known is not None and known.state in PRESENT:
                world[name] = replace(known, rank=rank, state=State.ALIVE)
            else:
                world[name] = Worker(name, rank, State.EXPECTED, now_s)
        waiting = {w.name: replace(w, rank=None, state=State.WAITING) for w in others}
        self.workers = world | waiting
        self.epoch, self.running = self.epoch + 1, True
        return ranks

    def end(self) -> None:
        """End the epoch: waiting workers get ranks after the others; the next `begin` forgets those that are gone."""
        self.running = False
        for worker in list(self.workers.values()):
            if worker.state is State.WAITING:
                self.workers[worker.name] = replace(worker, state=State.ALIVE, rank=self._free_rank())

    def alive(self) -> list[Worker]:
        """Return the present workers that have a rank, by rank."""
        found = [worker for worker in self.workers.values() if worker.state is State.ALIVE]
        return sorted(found, key=lambda worker: worker.rank if worker.rank is not None else -1)

    def ready(self, min_workers: int) -> bool:
        """Return whether at least *min_workers* are present."""
        return len(self.alive()) >= min_workers

    def _free_rank(self) -> int:
        """Return the rank after all others: `begin` closes gaps; no other worker fills them."""
        return max((worker.rank for worker in self.workers.values() if worker.rank is not None), default=-1) + 1

    def _gone(self, name: str, state: State) -> bool:
        worker = self.workers.get(name)
        if worker is None or worker.state in (State.LOST, State.LEFT):
            return False
        self.workers[name] = replace(worker, state=state)
        return True
