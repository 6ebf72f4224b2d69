"""A process's part in a run: meet the others, run the program, hand in the outcome.

Rank 0 combines all outcomes into the run's record.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import json
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
import torch

from simcluster.compute import HOST
from simcluster.documents.captured.source import placeless_config
from simcluster.errors import LaunchFailed, RunError, SimclusterError, UsageError
from simcluster.job import ClusterJob, unlike
from simcluster.process.intra_op import one_thread
from simcluster.process.kernels import heed_portable
from simcluster.process.unawaited import unawaited_noticed
from simcluster.runs.doubts import NOT_AWAITED
from simcluster.runs.record import NodeRecord, RunRecord, kept_spans
from simcluster.runs.recorder import Recorder
from simcluster_backends.common.event_loop import end_programs_tasks, run_to_its_end
from simcluster_backends.common.failure import Failure, failure_of
from simcluster_backends.common.narrator import Narrator
from simcluster_backends.common.precise_loop import asyncios_own
from simcluster_backends.common.shortcuts import kept_shortcuts
from simcluster_backends.common.waiting import wait_in_words, waiting_at
from simcluster_backends.common.watchdog import NodeProgress, Watchdog
from simcluster_backends.torch.device_transfers import card_of, carriers
from simcluster_backends.torch.group import PrefixStore, RankStatus, StatusBoard, Store, TorchGroup, WorldPlace
from simcluster_backends.torch.member import TorchMember, TorchTransport
from simcluster_backends.torch.rank_news import Teller
from simcluster_backends.torch.record import conclude, encode, run_error
from simcluster_backends.torch.settings import TorchOptions

WAITS_SHOWN = 20
STOP_S = 3.0
"""The time that an algorithm has to stop when it is cancelled."""
LAST_S = 30.0
"""The time that a peer has to accept this node's record or goodbye."""

Program = Callable[[TorchTransport, Recorder, str], Awaitable[NodeRecord]]


def take_part(
    job: ClusterJob,
    options: TorchOptions,
    place: WorldPlace,
    store: Store,
    fallen: Callable[[], list[str]] = lambda: [],
) -> RunRecord | RunError | None:
    """Run this process's rank of *job*. Rank 0 returns the record, other ranks their error or None.

    *fallen* returns descriptions of other processes that have ended. Raise LaunchFailed if the
    ranks do not come together, or do not have the same job and data.
    """
    began_s = time.perf_counter()
    heed_portable({"portable": options.portable})
    with one_thread():
        board = StatusBoard(store, place, job.names, fallen)
        # The ranks compare everything except directories, which may differ between processes.
        config = json.dumps(placeless_config(json.loads(job.config_json)))
        said = "\n".join([config, job.program, str(job.seed), *job.names])
        digests = board.agree("here", hashlib.sha256(said.encode()).hexdigest(), options.start_s)
        others = [rank for rank, digest in enumerate(digests) if digest != digests[place.rank]]
        if others:
            words = [f"rank {rank} ({job.names[rank]}) has another" for rank in others]
            raise LaunchFailed(f"rank {place.rank} has a different experiment from others", words)
        group = TorchGroup(PrefixStore("gloo", store), place, options.start_s)
        program, problem, held = _prepared(job)
        device = _device(job, place)
        problems = board.agree("ready", problem, options.start_s)
        if any(problems):
            reasons = [f"rank {rank} ({job.names[rank]}): {text}" for rank, text in enumerate(problems) if text]
            raise LaunchFailed("not every rank could read the experiment", reasons)
        assert program is not None
        check_alike(job.names, board.agree("compared", json.dumps(held), options.start_s))
        cards = board.agree("carried", card_of(device) if options.nccl else "", options.start_s)
        ways = carriers(group, PrefixStore("carriers", store), place, device, cards)
        board.post(RankStatus())
        board.tell("")
        watched = board.agree("set", "watched" if job.watcher is not None else "", options.start_s)
        board.limit(options.dead_s)

        async def live(program: Program) -> RunRecord | RunError | None:
            member = partial(TorchMember, group=group, inbox_bytes=options.inbox_bytes, device=device, carriers=ways)
            node = _RankRun(job, options, place, board, member, began_s)
            if watched[0]:
                node.teller.begin()
            return await node.live(program)

        return run_to_its_end(live(program), asyncios_own())


def _prepared(job: ClusterJob) -> tuple[Program | None, str, list[str]]:
    """Prepare the program of *job*; return (program, "", hashes of its data).

    If that fails, return (None, the problem, []): all ranks must learn of the problem.
    """
    module_name, _, function = job.program.partition(":")
    try:
        module: Any = importlib.import_module(module_name)
        prepare = getattr(module, "prepare", lambda config_json: None)
        held = prepare(job.config_json)
        return getattr(module, function), "", held or []
    except SimclusterError as error:
        return None, str(error) or type(error).__name__, []


def check_alike(names: Sequence[str], told: Sequence[str]) -> None:
    """Raise LaunchFailed if the ranks' hashes differ; *told* has them in JSON, by rank."""
    held = {f"rank {rank} ({names[rank]})": json.loads(text) for rank, text in enumerate(told)}
    if found := unlike(held):
        raise LaunchFailed("not every rank has the same data", found)


def _device(job: ClusterJob, place: WorldPlace) -> torch.device:
    """Return the device of this rank's tensors, as the program's module chooses it.

    Return the host if the module does not choose, or if this machine lacks the device. The program
    itself then reports that.
    """
    module: Any = importlib.import_module(job.program.partition(":")[0])
    find: Callable[[str, str], torch.device] = getattr(module, "device_of_node", lambda *_: HOST)
    try:
        return find(job.config_json, job.names[place.rank])
    except UsageError:
        return HOST


class _RankRun:
    """The run of one rank of *job*, from its first heartbeat to its outcome."""

    def __init__(
        self, job: ClusterJob, options: TorchOptions, place: WorldPlace, board: StatusBoard,
        member: Callable[..., TorchMember], began_s: float,
    ) -> None:  # fmt: skip
        self._job = job
        self._rank = place.rank
        self._began_s = began_s
        self._loop = asyncio.get_running_loop()
        self._started_s = time.perf_counter()
        self._options = options
        self._recorder = Recorder(place.rank, job.names[place.rank], self._now, kept_spans(place.size))
        self._recorder.losses_are_planned = False
        self._member = member(place.rank, list(job.names), self._recorder)
        self._transport = TorchTransport(self._member, job.seed, kept_shortcuts(options.shortcuts))
        self._narrator = Narrator(self._member.activity)
        self._watchdog = Watchdog(options.stuck_s, options.idle_s, options.limit_s, self._loop.time())
        self._statuses: list[RankStatus] = []
        self._stop = ""
        self._part_over = False
        self._patience_over = asyncio.Event()  # set if the program does not stop when cancelled
        self._turn()
        self._part: asyncio.Task[NodeRecord] | None = None
        self._alone = asyncio.Event()  # set if the store does not answer: no rank watches this one
        self._board = board
        self._last_beat = threading.Event()
        self._heard_s: dict[int, float] = {}  # the time of each rank's last heartbeat
        self.teller = Teller(
            job, board, self._member, lambda: self._narrator.machine, self._now, self._silent_s, options.heartbeat_s
        )
        self._beating = threading.Thread(target=self._beat, name="heartbeats", daemon=True)

    async def live(self, program: Program) -> RunRecord | RunError | None:
        failure = None
        self._beating.start()
        try:
            record, failure = await self._run(program)
            self._part_over = True
            content = encode(record, failure)
            if self._rank == 0:
                self._member.outcomes[0] = content
            else:
                # The last news goes before the record: after that, rank 0 reads no more news.
                await asyncio.to_thread(self.teller.end)
                await self._member.hand_in(0, content, LAST_S, urgent=failure is not None)
            await self._member.finish(f"failed: {failure.text}" if failure is not None else "", LAST_S)
            over = [asyncio.create_task(event.wait()) for event in (self._member.all_over, self._alone)]
            await asyncio.wait(over, return_when=asyncio.FIRST_COMPLETED)
            for task in over:
                task.cancel()
        finally:
            await asyncio.to_thread(self.teller.end)
            self._last_beat.set()
            await asyncio.to_thread(self._beating.join, self._options.dead_s)
            await self._member.close()
        if self._rank:
            return run_error(failure, self._rank, self._job.names) if failure is not None else None
        wall_s = time.perf_counter() - self._began_s
        done = conclude(self._job.names, self._member.outcomes, self._member.inbox.lost, self._statuses, wall_s)
        self.teller.conclude(str(done.error or ""))
        return done

    async def _run(self, program: Program) -> tuple[NodeRecord, Failure | None]:
        """Run the program, and end its other tasks with it; return its record and failure."""
        self._narrator.begin()
        self._part = asyncio.ensure_future(program(self._transport, self._recorder, self._job.config_json))
        patience = asyncio.create_task(self._patience_over.wait())
        try:
            with unawaited_noticed(partial(self._recorder.record.notice, NOT_AWAITED)):
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
            self._narrator.end()
            end_programs_tasks()

    def _now(self) -> float:
        return time.perf_counter() - self._started_s

    def _silent_s(self, rank: int) -> float:
        return max(0.0, time.monotonic() - self._heard_s.get(rank, self._turned_s))

    # in the heartbeat thread

    def _beat(self) -> None:
        """Post this rank's status at every heartbeat, and read the status of all ranks.

        The beats continue while the event loop is busy, until it has not turned for `loop_s`. Once
        `_last_beat` is set, beat once more, so that others see the last status.
        """
        beats: dict[int, int] = {}
        heard_s = self._heard_s
        options = self._options
        tell = self._loop.call_soon_threadsafe
        last_s = time.monotonic()
        number = 0
        try:
            while True:
                over = self._last_beat.wait(options.heartbeat_s)
                if time.monotonic() - self._turned_s < options.loop_s:
                    number += 1
                said, steps = self._member.progress, self._recorder.record.steps
                waits, places = list(said.waits[:WAITS_SHOWN]), waiting_at(asyncio.all_tasks(self._loop))
                unread = self._member.inbox.unread() if waits else []
                progress = said.moved, said.done, said.computing, waits, steps, said.ended
                self._board.post(RankStatus(number, *progress, self._stop, places, unread))
                if over:
                    return
                found, now_s = self._board.read(), time.monotonic()
                if now_s - last_s > 2 * options.heartbeat_s + 1.0:
                    # This process itself was asleep: the ranks' silence means nothing.
                    heard_s.update(dict.fromkeys(heard_s, now_s))
                last_s = now_s
                for rank, other in enumerate(found):
                    if other.beat != beats.get(rank):
                        beats[rank], heard_s[rank] = other.beat, now_s
                    elif rank != self._rank and now_s - heard_s[rank] > options.dead_s:
                        tell(self._member.give_up, rank, f"silent for {options.dead_s:g} s")
                tell(self._hear, found)
        except (RuntimeError, msgspec.MsgspecError) as error:
            with suppress(RuntimeError):  # the loop is closed
                tell(self._cut_off, str(error).partition("\n")[0])

    # in the loop

    def _hear(self, found: list[RankStatus]) -> None:
        before, self._statuses = self._statuses, found
        if self._rank:
            if found[0].stop:
                self._stop_for(found[0].stop)
            return
        for rank, status in enumerate(found):
            if self._job.on_progress is not None and (not before or status.steps > before[rank].steps):
                self._job.on_progress(rank, status.steps)
        if self._stop:
            return
        gone = {*self._member.inbox.lost, *([0] if self._part_over else [])}  # ranks lost or ended
        nodes = [NodeProgress(said.moved, said.done, said.computing, said.waits, said.ended) for said in found]
        live, now_s = {rank: node for rank, node in enumerate(nodes) if rank not in gone}, self._loop.time()
        running = list(live.values())
        reason = self._watchdog.standstill(nodes, running, now_s) or self._watchdog.over_time(running, now_s)
        if reason:
            unknown = "a piece of its work, or something outside the transport"
            waits = [
                wait_in_words(f"rank {rank} ({name})", said.waits, said.places, said.unread, unknown)
                for rank, (name, said) in enumerate(zip(self._job.names, found, strict=True))
                if rank in live and not said.ended
            ]
            self._stop_for("\n".join([reason, *waits]))

    def _stop_for(self, reason: str) -> None:
        if self._stop:
            return
        self._stop = reason
        if self._part is not None:
            self._part.cancel()

        def give_up_peers() -> None:
            for rank in self._member.inbox.peers:
                self._member.give_up(rank, "it did not stop when asked to")

        self._loop.call_later(STOP_S, self._patience_over.set)
        self._loop.call_later(2 * STOP_S, give_up_peers)

    def _turn(self) -> None:
        self._turned_s = time.monotonic()
        self._loop.call_later(self._options.heartbeat_s, self._turn)

    def _cut_off(self, reason: str) -> None:
        """Stop this rank: rank 0's process or the launcher is gone, since the store is silent."""
        if not self._part_over:
            self._stop_for(f"the store in which all ranks met does not answer: {reason}")
        self._alone.set()
