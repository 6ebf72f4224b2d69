"""A process's part in a run: meet the others, run the program, hand in the outcome; rank 0 combines them."""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import time
from collections.abc import Awaitable, Callable, Container, Sequence
from typing import Any, TypeAlias

from simcluster.errors import LaunchFailed, RunError, SimclusterError
from simcluster.experiment.job import ClusterJob
from simcluster.process.intra_op import one_thread
from simcluster.process.kernels import heed_portable
from simcluster.runs.record import NodeRecord, RunRecord, kept_spans
from simcluster.runs.recorder import Recorder
from simcluster_backends.common.event_loop import KEEPER, run_to_its_end
from simcluster_backends.common.failure import Failure, failure_of
from simcluster_backends.common.watchdog import Progress, Watchdog
from simcluster_backends.torch.board import Board, Pulse, Status
from simcluster_backends.torch.group import Group, Place, PrefixStore, Store
from simcluster_backends.torch.member import Member
from simcluster_backends.torch.record import conclude, encode, run_error
from simcluster_backends.torch.settings import Options
from simcluster_backends.torch.transport import TorchTransport

WAITS_SHOWN = 20
STOP_S = 3.0
"""How long an algorithm may take to stop when asked to."""
LAST_S = 30.0
"""How long a peer may take to accept this node's record or goodbye."""

Program: TypeAlias = Callable[[TorchTransport, Recorder, str], Awaitable[NodeRecord]]


def take_part(
    job: ClusterJob,
    options: Options,
    place: Place,
    store: Store,
    fallen: Callable[[], list[str]] = lambda: [],
) -> RunRecord | RunError | None:
    """Run this process's rank of *job*. Rank 0 returns the run's record, other ranks their error or None.

    *fallen* describes other processes that have ended. Raise LaunchFailed if the ranks do not come together or do not
    have the same job.
    """
    began_s = time.perf_counter()
    heed_portable({"portable": options.portable})
    with one_thread():
        board = Board(store, place, job.names, fallen)
        _check_same(job, place, board.agree("here", _digest(job), options.start_s))
        group = Group(PrefixStore("gloo", store), place, options.start_s)
        program, problem = _prepared(job)
        said = board.agree("ready", problem, options.start_s)
        if any(said):
            reasons = [f"rank {rank} ({job.names[rank]}): {text}" for rank, text in enumerate(said) if text]
            raise LaunchFailed("not every rank could read the experiment", reasons)
        board.post(Status())
        board.agree("set", "", options.start_s)
        board.limit(options.dead_s)
        return run_to_its_end(_live(job, options, place, board, group, program, began_s))


def _digest(job: ClusterJob) -> str:
    said = "\n".join([job.config_json, job.program, str(job.seed), *job.names])
    return hashlib.sha256(said.encode()).hexdigest()


def _check_same(job: ClusterJob, place: Place, digests: list[str]) -> None:
    others = [rank for rank, digest in enumerate(digests) if digest != digests[place.rank]]
    if others:
        words = [f"rank {rank} ({job.names[rank]}) has another" for rank in others]
        raise LaunchFailed(f"rank {place.rank} has a different experiment from others", words)


def _prepared(job: ClusterJob) -> tuple[Program | None, str]:
    """Return the program of *job*, prepared; or the problem, which all ranks must hear."""
    module_name, _, function = job.program.partition(":")
    try:
        module: Any = importlib.import_module(module_name)
        prepare = getattr(module, "prepare", None)
        if prepare is not None:
            prepare(job.config_json)
        return getattr(module, function), ""
    except SimclusterError as error:
        return None, str(error) or type(error).__name__


async def _live(
    job: ClusterJob,
    options: Options,
    place: Place,
    board: Board,
    group: Group,
    program: Program | None,
    began_s: float,
) -> RunRecord | RunError | None:
    assert program is not None
    return await _Node(job, options, place, board, group, began_s).live(program)


class _Node:
    """One run of one rank."""

    def __init__(
        self, job: ClusterJob, options: Options, place: Place, board: Board, group: Group, began_s: float
    ) -> None:
        self._job, self._rank, self._began_s = job, place.rank, began_s
        self._loop = asyncio.get_running_loop()
        self._started_s = time.perf_counter()
        self._options = options
        self._recorder = Recorder(place.rank, job.names[place.rank], self._now, kept_spans(place.size))
        self._recorder.losses_are_planned = False
        self._member = Member(place.rank, list(job.names), self._recorder, group, inbox_bytes=options.inbox_bytes)
        self._transport = TorchTransport(self._member, job.seed)
        self._watchdog = Watchdog(options.stuck_s, options.idle_s, options.limit_s, self._loop.time())
        self._statuses: list[Status] = []
        self._stop, self._part_over = "", False
        self._patience_over = asyncio.Event()  # with ranks that do not stop
        self._turn()
        self._part: asyncio.Task[NodeRecord] | None = None
        self._alone = asyncio.Event()  # the store does not answer: this rank is no longer watched
        self._pulse = Pulse(
            board,
            options,
            place.rank,
            self._status,
            heard=lambda found: self._loop.call_soon_threadsafe(self._hear, found),
            turned_s=lambda: self._turned_s,
            silent=lambda rank: self._loop.call_soon_threadsafe(self._silent, rank),
            cut_off=lambda reason: self._loop.call_soon_threadsafe(self._cut_off, reason),
        )

    async def live(self, program: Program) -> RunRecord | RunError | None:
        failure = None
        self._pulse.start()
        try:
            record, failure = await self._run(program)
            self._part_over = True
            await self._hand_in(record, failure)
            over = [asyncio.create_task(event) for event in (self._member.all_over(), self._alone.wait())]
            await asyncio.wait(over, return_when=asyncio.FIRST_COMPLETED)
            for task in over:
                task.cancel()
        finally:
            await asyncio.to_thread(self._pulse.stop)
            await self._member.close()
        if self._rank:
            return run_error(failure, self._rank, self._job.names) if failure is not None else None
        wall_s = time.perf_counter() - self._began_s
        return conclude(self._job.names, self._member.outcomes, self._member.inbox.lost, self._statuses, wall_s)

    async def _run(self, program: Program) -> tuple[NodeRecord, Failure | None]:
        """Run the program. Tasks that it did not await end with it."""
        self._part = asyncio.ensure_future(program(self._transport, self._recorder, self._job.config_json))
        patience = asyncio.create_task(self._patience_over.wait())
        try:
            await asyncio.wait([self._part, patience], return_when=asyncio.FIRST_COMPLETED)
            record = self._part.result() if self._part.done() else None
            if not isinstance(record, NodeRecord):
                if self._part.done():
                    raise TypeError(f"{self._job.program} returned {type(record).__name__}, not a NodeRecord")
                raise asyncio.CancelledError("it did not stop when asked to")
            return record, None
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            if isinstance(error, asyncio.CancelledError) and not self._stop:
                raise
            failure = Failure("stopped", self._stop) if self._stop else failure_of(error)
            record = self._recorder.record
            if record.finished_s is None:
                record = self._recorder.finish(None)
            return record, failure
        finally:
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                if task.get_name() != KEEPER:
                    task.cancel()

    async def _hand_in(self, record: NodeRecord, failure: Failure | None) -> None:
        content = encode(record, failure)
        if self._rank == 0:
            self._member.outcomes[0] = content
        else:
            await self._member.hand_in(0, content, LAST_S, urgent=failure is not None)
        await self._member.finish(f"failed: {failure.text}" if failure is not None else "", LAST_S)

    def _now(self) -> float:
        return time.perf_counter() - self._started_s

    # in the heartbeat thread

    def _status(self) -> Status:
        said, steps = self._member.progress, self._recorder.record.steps
        waits = list(said.waits[:WAITS_SHOWN])
        return Status(0, said.moved, said.done, said.computing, waits, steps, said.ended, self._stop)

    # in the loop

    def _hear(self, found: list[Status]) -> None:
        before, self._statuses = self._statuses, found
        if self._rank:
            if found[0].stop:
                self._stop_for(found[0].stop)
            return
        for rank, status in enumerate(found):
            if self._job.on_progress is not None and (not before or status.steps > before[rank].steps):
                self._job.on_progress(rank, status.steps)
        gone = {*self._member.inbox.lost, *([0] if self._part_over else [])}
        if not self._stop and (reason := self._reason_to_stop(found, gone)):
            self._stop_for("\n".join([reason, *_waits(found, gone, self._job.names)]))

    def _reason_to_stop(self, found: Sequence[Status], gone: Container[int]) -> str:
        """Return the watchdog's verdict or ""; *gone* are ranks that have ended or are lost."""
        nodes = [Progress(said.moved, said.done, said.computing, said.waits, said.ended) for said in found]
        live, now_s = [node for rank, node in enumerate(nodes) if rank not in gone], self._loop.time()
        return self._watchdog.standstill(nodes, live, now_s) or self._watchdog.over_time(live, now_s)

    def _silent(self, rank: int) -> None:
        self._member.give_up(rank, f"silent for {self._options.dead_s:g} s")

    def _stop_for(self, reason: str) -> None:
        if not self._stop:
            self._stop = reason
            if self._part is not None:
                self._part.cancel()
            self._loop.call_later(STOP_S, self._patience_over.set)
            self._loop.call_later(2 * STOP_S, self._give_up_all)

    def _give_up_all(self) -> None:
        """Give up the peers that have not stopped when asked to."""
        for rank in self._member.inbox.peers:
            self._member.give_up(rank, "it did not stop when asked to")

    def _turn(self) -> None:
        self._turned_s = time.monotonic()
        self._loop.call_later(self._options.heartbeat_s, self._turn)

    def _cut_off(self, reason: str) -> None:
        """Stop: the store does not answer, so rank 0's process or the launcher is gone."""
        if not self._part_over:
            self._stop_for(f"the store in which all ranks met does not answer: {reason}")
        self._alone.set()


def _waits(found: Sequence[Status], gone: Container[int], names: Sequence[str]) -> list[str]:
    """Describe what each running rank waits for."""
    return [
        f"rank {rank} ({names[rank]}) waits for "
        + (", ".join(status.waits) or "a piece of its work, or something outside the transport")
        for rank, status in enumerate(found)
        if rank not in gone and not status.ended
    ]
