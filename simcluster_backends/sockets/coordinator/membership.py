"""Who takes part and with which rank, as a state machine to which time is handed in.

Ranks are given in the order in which workers register, or in that of the run's own list. While an epoch runs, nobody's
rank changes: who is lost keeps it, and has it again on coming back; who is new waits for the next epoch. Between epochs
ranks stay, too, until `begin` closes the gaps of those who are gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum


class State(StrEnum):
    """What is known of a worker. EXPECTED: of the epoch, but never there; WAITING: there, but not of the epoch."""

    EXPECTED = "expected"
    ALIVE = "alive"
    WAITING = "waiting"
    LOST = "lost"
    LEFT = "left"


PRESENT = (State.ALIVE, State.WAITING)


@dataclass(frozen=True)
class Worker:
    """*rank* is None as long as it has none, *heard_s* when it was last heard of, *address* where it can be reached."""

    name: str
    rank: int | None
    state: State
    heard_s: float
    address: str = ""


@dataclass
class Membership:
    """A worker that is not heard of for more than *dead_s* is lost. *epoch* counts the worlds that there have been."""

    dead_s: float
    epoch: int = 0
    running: bool = False
    workers: dict[str, Worker] = field(default_factory=dict)

    def register(self, name: str, now_s: float, address: str = "") -> Worker:
        """*name* is there. One that was there before has the rank that it had."""
        known = self.workers.get(name)
        rank = known.rank if known is not None else None
        if rank is None and not self.running:
            rank = self._free_rank()
        state = State.WAITING if self.running and rank is None else State.ALIVE
        worker = Worker(name, rank, state, now_s, address or (known.address if known else ""))
        self.workers[name] = worker
        return worker

    def heartbeat(self, name: str, now_s: float) -> bool:
        """Whether *name* is still counted in; if not, it has to register (again)."""
        worker = self.workers.get(name)
        if worker is None or worker.state not in PRESENT:
            return False
        self.workers[name] = replace(worker, heard_s=max(now_s, worker.heard_s))
        return True

    def leave(self, name: str) -> bool:
        """*name* goes of its own will; whether it was not gone before."""
        return self._gone(name, State.LEFT)

    def takes_part(self, name: str) -> bool:
        """Whether *name* is there and has a rank in the epoch that runs."""
        worker = self.workers.get(name)
        return self.running and worker is not None and worker.state is State.ALIVE

    def lose(self, name: str) -> bool:
        """Somebody who knows says that *name* is lost; whether it was not gone before."""
        return self._gone(name, State.LOST)

    def expire(self, now_s: float) -> list[str]:
        """Those of whom nothing was heard for too long, from now on lost."""
        late = [w.name for w in self.workers.values() if w.state in PRESENT and now_s - w.heard_s > self.dead_s]
        for name in late:
            self.lose(name)
        return late

    def begin(self, now_s: float, names: Sequence[str] | None = None) -> dict[str, int]:
        """A new epoch of *names*, which are the ranks in order, or else of all who are there; returns ranks by name.

        Those of *names* who are not there yet are expected, with their rank, until they register.
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
        """The epoch is over: who waited gets a rank behind the others; the gone are forgotten by the next `begin`."""
        self.running = False
        for worker in list(self.workers.values()):
            if worker.state is State.WAITING:
                self.workers[worker.name] = replace(worker, state=State.ALIVE, rank=self._free_rank())

    def alive(self) -> list[Worker]:
        """Those who are there and have a rank, by rank."""
        found = [worker for worker in self.workers.values() if worker.state is State.ALIVE]
        return sorted(found, key=lambda worker: worker.rank if worker.rank is not None else -1)

    def ready(self, min_workers: int) -> bool:
        """Whether so many are there."""
        return len(self.alive()) >= min_workers

    def _free_rank(self) -> int:
        """Behind all that anybody has: a gap is closed by `begin`, not filled by somebody else."""
        return max((worker.rank for worker in self.workers.values() if worker.rank is not None), default=-1) + 1

    def _gone(self, name: str, state: State) -> bool:
        worker = self.workers.get(name)
        if worker is None or worker.state in (State.LOST, State.LEFT):
            return False
        self.workers[name] = replace(worker, state=state)
        return True
