"""The board in the rendezvous store: the status of all ranks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta

import msgspec

from simcluster.errors import LaunchFailed
from simcluster_backends.torch.group import Place, Store, wait_for
from simcluster_backends.torch.settings import Options


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


class Pulse:
    """A thread that posts *status*() at every heartbeat, and reports what it reads.

    It beats while the node's event loop is busy, until the loop has not turned for `loop_s`: *turned_s* returns when it
    last did, by the monotonic clock. *heard* gets the status of all ranks, *silent* the rank of a peer that has stopped
    beating, *cut_off* the reason why the store does not answer. All are called in this thread.
    """

    def __init__(
        self,
        board: Board,
        options: Options,
        rank: int,
        status: Callable[[], Status],
        *,
        heard: Callable[[list[Status]], object],
        turned_s: Callable[[], float],
        silent: Callable[[int], object],
        cut_off: Callable[[str], object],
    ) -> None:
        self._board, self._options, self._rank, self._status = board, options, rank, status
        self._heard, self._turned_s, self._silent, self._cut_off = heard, turned_s, silent, cut_off
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeats", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop after one more beat, so that others see the last status."""
        self._end.set()
        self._thread.join(self._options.dead_s)

    def _run(self) -> None:
        beats: dict[int, int] = {}
        heard_s: dict[int, float] = {}
        last_s = time.monotonic()
        number = 0
        try:
            while True:
                over = self._end.wait(self._options.heartbeat_s)
                if time.monotonic() - self._turned_s() < self._options.loop_s:
                    number += 1
                status = self._status()
                status.beat = number
                self._board.post(status)
                if over:
                    return
                found, now_s = self._board.read(), time.monotonic()
                if now_s - last_s > 2 * self._options.heartbeat_s + 1.0:
                    heard_s = dict.fromkeys(heard_s, now_s)  # this process itself slept: no peer is to blame
                last_s = now_s
                for rank, other in enumerate(found):
                    if other.beat != beats.get(rank):
                        beats[rank], heard_s[rank] = other.beat, now_s
                    elif rank != self._rank and now_s - heard_s[rank] > self._options.dead_s:
                        self._silent(rank)
                self._heard(found)
        except (RuntimeError, msgspec.MsgspecError) as error:
            with suppress(RuntimeError):  # the loop is closed
                self._cut_off(str(error).partition("\n")[0])
