"""The board in the rendezvous store: the status of all ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

import msgspec

from simcluster.errors import LaunchFailed
from simcluster_backends.torch.group import Place, Store, wait_for


class Status(msgspec.Struct, array_like=True):
    """A rank's progress. *beat* rises while its process lives; *stop*, set by rank 0, says why all must stop."""

    beat: int = 0
    moved: int = 0
    done: int = 0
    computing: int = 0
    waits: list[str] = []
    steps: int = 0
    ended: bool = False
    stop: str = ""


_decoder = msgspec.json.Decoder(Status)


class Board:
    """One run's part of *store*. Its methods block. *fallen* describes the processes that have already ended."""

    def __init__(
        self, store: Store, place: Place, names: Sequence[str], fallen: Callable[[], list[str]] = lambda: []
    ) -> None:
        self._store, self._place, self._names, self._fallen = store, place, names, fallen

    def agree(self, stage: str, said: str, timeout_s: float) -> list[str]:
        """Post *said* and return what each rank says at *stage*. Raise LaunchFailed, naming the ranks that do not."""
        self._store.set(f"{stage}/{self._place.rank}", said)
        keys = [f"{stage}/{rank}" for rank in range(self._place.size)]
        missing = wait_for(self._store, keys, timeout_s, lambda: bool(self._fallen()))
        if missing and self._fallen():
            raise LaunchFailed("a process ended before the run began", self._fallen())
        if missing:
            late = [int(key.rpartition("/")[2]) for key in missing]
            words = [f"rank {rank} ({self._names[rank]}) did not" for rank in late]
            raise LaunchFailed(f"{self._names[self._place.rank]} waited {timeout_s:g} s for all to be {stage}", words)
        return [self._store.get(key).decode() for key in keys]

    def post(self, status: Status) -> None:
        self._store.set(f"status/{self._place.rank}", msgspec.json.encode(status).decode())

    def read(self) -> list[Status]:
        """Return the status of every rank; each must have posted one."""
        values = self._store.multi_get([f"status/{rank}" for rank in range(self._place.size)])
        return [_decoder.decode(value) for value in values]

    def limit(self, timeout_s: float) -> None:
        """Limit every later call to *timeout_s*."""
        self._store.set_timeout(timedelta(seconds=timeout_s))
