"""The thread in which ranks report their state to rank 0, and rank 0 reports to the run's watcher.

It is separate from the heartbeats, so that no rank looks dead if a watcher is slow or fails. A run
without a watcher has no such thread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from simcluster.errors import ENDED
from simcluster.watching.board import NodeTelemetry, PlainModel, Telemetry
from simcluster.watching.telling import RowContents, link_telemetry, run_info, with_rows
from simcluster_backends.common.log_line import MACHINE

if TYPE_CHECKING:
    from simcluster.job import ClusterJob
    from simcluster_backends.torch.group import StatusBoard
    from simcluster_backends.torch.member import TorchMember

log = logging.getLogger("simcluster.torch")

END_S = 5.0
"""The time that the thread has to post its last news, before it is abandoned."""


class RankNews(PlainModel):
    """A report of a rank's state, and of its traffic: peer -> [messages, bytes]."""

    node: NodeTelemetry
    sent_to: dict[int, list[int]]


class Teller:
    """A thread that posts *member*'s news to *board* every *interval_s*, from `begin` to `end`.

    On rank 0 it also offers the news of all ranks to the watcher. *machine* returns the readings of
    this machine, *now* the time by the run's clock, *silent* the seconds since a rank's last
    heartbeat.
    """

    def __init__(
        self,
        job: ClusterJob,
        board: StatusBoard,
        member: TorchMember,
        machine: Callable[[], Mapping[str, float]],
        now: Callable[[], float],
        silent: Callable[[int], float],
        interval_s: float,
    ) -> None:
        self._job = job
        self._board = board
        self._member = member
        self._machine = machine
        self._now = now
        self._silent = silent
        self._interval_s = interval_s
        self._watcher = job.watcher if member.rank == 0 else None
        self._noted = RowContents()
        self._last = Telemetry(elapsed_s=0.0)
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        self._thread = threading.Thread(target=self._run, name=f"news of {self._member.name}", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Post the last news, and wait for the thread. It does nothing if the thread has ended."""
        self._is_over.set()
        if self._thread is not None:
            self._thread.join(END_S)

    def conclude(self, error: str) -> None:
        """Notify the watcher that the run has ended, with *error* or "". Call it after `end`."""
        if self._watcher is not None and self._thread is not None:
            self._watcher.end(self._last, error)

    def _run(self) -> None:
        job = self._job
        watcher = self._watcher
        is_over = False
        try:
            if watcher is not None:
                watcher.begin(run_info(job.names, job.seed, job.about, "torch"))
            while not is_over:
                is_over = self._is_over.wait(self._interval_s)
                self._board.tell(self._news().model_dump_json())
                if watcher is not None and not is_over:
                    watcher.look(self._telemetry)
            if watcher is not None:
                self._last = self._telemetry()
        except Exception as error:  # such as a store that is gone, which the heartbeats report
            log.debug("%s tells no news any more: %s", self._member.name, error)

    def _news(self) -> RankNews:
        """Return the news of this rank. Safe in any thread."""
        recorder, said = self._member.recorder, self._member.progress
        record, readings = recorder.record, self._machine()
        sent_to = {peer: list(count) for peer, count in list(record.sent_to.items())}
        self._noted.read(record.metrics, record.spans, recorder.evaluations)
        begun = "running" if record.steps or said.moved else "joined"
        node = NodeTelemetry(
            name=self._member.name,
            rank=self._member.rank,
            state="ended" if said.ended else begun,
            step=record.steps,
            computing=bool(said.computing),
            compute_s=record.rest.compute_s if record.rest is not None else 0.0,
            waits=list(said.waits),
            bytes_received=record.bytes_received,
        )
        machine = {key: readings.get(key) for key in MACHINE}
        return RankNews(node=with_rows(node.model_copy(update=machine), self._noted, sent_to), sent_to=sent_to)

    def _telemetry(self) -> Telemetry:
        """Return the state of all ranks, for the watcher."""
        names, lost = self._job.names, dict(self._member.inbox.lost)
        told = [RankNews.model_validate_json(text) if text else None for text in self._board.told()]
        nodes = []
        for rank, (name, news) in enumerate(zip(names, told, strict=True)):
            node = news.node if news is not None else NodeTelemetry(name=name, rank=rank, state="joined")
            reason = lost.get(rank, "")
            if reason == ENDED or node.state == "ended":
                changed = {"state": "ended"}
            elif reason:
                changed = {"state": "lost", "reason": reason}
            else:
                changed = {}
            nodes.append(node.model_copy(update={**changed, "silent_s": self._silent(rank)}))
        sent = {rank: news.sent_to if news is not None else {} for rank, news in enumerate(told)}
        return Telemetry(elapsed_s=self._now(), nodes=nodes, links=link_telemetry(names, self._job.topology, sent))
