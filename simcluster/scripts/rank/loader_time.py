"""The time that the workers of a DataLoader take in the simulator.

If the workers are measured, a batch takes as much of the cluster's time as its worker took
processor time. Otherwise batches take no time.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from typing import Any, NamedTuple

from torch.utils.data import dataloader, get_worker_info

from simcluster.scripts.messages import TimeAsked
from simcluster.scripts.rank.node_link import NodeLink, note_once
from simcluster.scripts.rank.replacements import around

_processor_s = time.process_time  # bound before the script's clocks are replaced by the cluster's
_Iterator = dataloader._MultiProcessingDataLoaderIter


class TimedBatch(NamedTuple):
    """The *content* of a batch, and the processor time that its worker took to load it."""

    content: Any
    duration_s: float


class LoaderSchedule:
    """The times at which the workers of one iterator are asked for batches and finish them."""

    def __init__(self) -> None:
        self._asked_s: defaultdict[int, deque[float]] = defaultdict(deque)
        self._free_s: defaultdict[int, float] = defaultdict(float)

    def ask(self, worker: int, now_s: float) -> None:
        """Note that *worker* was asked for another batch at *now_s*."""
        self._asked_s[worker].append(now_s)

    def ready_s(self, worker: int, duration_s: float) -> float:
        """Return the time at which *worker* finishes its oldest pending batch, which takes
        *duration_s*.
        """
        self._free_s[worker] = max(self._free_s[worker], self._asked_s[worker].popleft()) + duration_s
        return self._free_s[worker]


def install_loader(link: NodeLink, *, is_measured: bool) -> None:
    """Make the batches of workers take the cluster's time, which *link* reports, if *is_measured*.

    Otherwise print a note that they take none.
    """
    if is_measured:
        _time_fetches()
        _wait_for_batches(link)
    else:
        around(_Iterator, "__init__")(_begin_free)


def _begin_free(begin: Any, *args: Any) -> None:
    begin(*args)
    note_once("workers of a DataLoader take no time in the simulator; `script: {loader: measured}` counts them")


def _time_fetches() -> None:
    """Make workers report how long each batch takes. Workers are forked from this process, so they
    inherit the change.
    """

    @around(dataloader._DatasetKind, "create_fetcher")
    def create_fetcher(create: Any, *args: Any) -> Any:
        fetcher = create(*args)
        if get_worker_info() is not None:
            around(fetcher, "fetch")(_timed)
        return fetcher


def _timed(fetch: Any, index: Any) -> TimedBatch:
    began_s = _processor_s()
    content = fetch(index)
    return TimedBatch(content, _processor_s() - began_s)


def _wait_for_batches(link: NodeLink) -> None:
    def schedule_of(iterator: Any) -> LoaderSchedule:
        schedule: LoaderSchedule = vars(iterator).setdefault("_schedule", LoaderSchedule())
        return schedule

    @around(_Iterator, "_try_put_index")
    def put_index(put: Any, self: Any) -> None:
        sent = self._send_idx
        put(self)
        if self._send_idx > sent:
            schedule_of(self).ask(self._task_info[sent][0], link.ask(TimeAsked()).now_s)

    @around(_Iterator, "_process_data")
    def process_data(take: Any, self: Any, data: Any, worker: int) -> Any:
        if isinstance(data, TimedBatch):
            ready_s = schedule_of(self).ready_s(worker, data.duration_s)
            wait_s = ready_s - link.ask(TimeAsked()).now_s
            if wait_s > 0:
                link.ask(TimeAsked(sleep_s=wait_s))
            data = data.content
        return take(self, data, worker)
