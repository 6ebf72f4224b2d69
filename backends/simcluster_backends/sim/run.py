"""Run a cluster in virtual time: a job with `run_cluster`, plain coroutines with `run_bodies`."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeAlias, TypeVar

from simcluster.documents.values import Flag, whole
from simcluster.errors import ABSENT, ENDED, NeedsValues, NodeFailed, PeerLost, RunError, traceback_of
from simcluster.experiment.restarts import Restarts
from simcluster.fault_plans.kinds import DEAD_S
from simcluster.fault_plans.log import FaultLog
from simcluster.process.intra_op import one_thread, usable_cores
from simcluster.process.kernels import heed_portable
from simcluster.process.unawaited import unawaited_noticed
from simcluster.runs.doubts import NOT_AWAITED
from simcluster.runs.record import CodeDoubt, RunRecord
from simcluster.testing import ComesBack
from simcluster.topology import star
from simcluster.watching.board import NodeTelemetry, Telemetry
from simcluster.watching.telling import Follower, NodeRows, RowContents, Watcher, link_telemetry, run_info, with_rows
from simcluster.workloads.progress.ledger import Ledger
from simcluster_backends.common.inbox import INBOX_BYTES
from simcluster_backends.common.options import RestartCount, Seconds, check
from simcluster_backends.common.shortcuts import ShortcutChoice
from simcluster_backends.common.verdict import Verdict
from simcluster_backends.sim.cluster import Body, SimCluster
from simcluster_backends.sim.devices import DeviceModel
from simcluster_backends.sim.faults import SimFaults
from simcluster_backends.sim.lazy_nodes import records_of
from simcluster_backends.sim.loop.callbacks import owner_of_task
from simcluster_backends.sim.loop.clock import collected_rarely
from simcluster_backends.sim.loop.stalls import stalls_reported
from simcluster_backends.sim.member import SimMember
from simcluster_backends.sim.worlds.runner import WorldRunner

if TYPE_CHECKING:
    from simcluster.checkpoints.gather import CheckpointKeeping
    from simcluster.checkpoints.shard import Shard
    from simcluster.job import ClusterJob
    from simcluster.topology import Topology
    from simcluster_backends.sim.transport import SimTransport

T = TypeVar("T")

__all__ = ["SimCluster", "run_bodies", "run_cluster", "verdict_of"]


@dataclass(frozen=True)
class SimOptions:
    """The options of the simulator. Gradients are computed in *threads* threads.

    The other options are the same as for real nodes.
    """

    read_elsewhere: ClassVar = ("replicas",)
    hint: ClassVar = "; is it meant for sockets?"
    threads: Annotated[int, whole(1, 4096)] = 1
    inbox_bytes: Annotated[int, whole(0, 2**50)] = INBOX_BYTES
    dead_s: Seconds = DEAD_S
    max_restarts: RestartCount = 0
    portable: Flag = False
    shortcuts: ShortcutChoice = True


Wrap: TypeAlias = "Callable[[SimTransport], Any] | None"
DeviceOf: TypeAlias = Callable[[int, DeviceModel], DeviceModel] | None


def run_cluster(job: ClusterJob, wrap: Wrap = None, device_of: DeviceOf = None) -> RunRecord:
    """Run *job* in virtual time. If the run fails, nothing is raised: the record has the error.

    *wrap* wraps the node that each program gets, and *device_of* replaces each rank's device. As on
    real nodes, a run that has lost a node is restarted up to `max_restarts` times (an option).
    """
    check_options(job.options)
    heed_portable(job.options)
    options = {name: value for name, value in job.options.items() if name != "portable"}
    restarts = Restarts(replace(job, options=options), most=options.pop("max_restarts", 0))
    while restarts.again(record := _run_once(restarts.job, wrap, device_of)):
        continue
    return restarts.told(record)


@one_thread()
def _run_once(job: ClusterJob, wrap: Wrap, device_of: DeviceOf) -> RunRecord:
    assert job.topology is not None, "the simulator needs a topology"
    program = resolve_name(job.program)
    options = {"threads": usable_cores(), **job.options}
    faults = SimFaults(job.faults, options.pop("dead_s", DEAD_S), more=bool(job.worlds))
    rests = wrap is None and device_of is None and _may_rest(job)
    cluster = SimCluster(job.topology, job.seed, faults=faults, rests=rests, **options)
    cluster.worlds = WorldRunner(job.worlds, cluster, faults).running
    telemetry, on_step = _watched(job, cluster, faults.log)

    def prepare(member: SimMember) -> None:
        member.on_step = on_step
        if faults.count_steps:
            member.recorder.on_step = partial(faults.on_step, member.rank)
        if device_of is not None:
            member.device = device_of(member.rank, member.device)
        if job.keeping is not None:
            member.recorder.restored = job.keeping.begins_with(member.rank)
            member.recorder.channel = _Checkpoints(job.keeping, cluster.gone) if job.keeping.keeps else None
        if job.follower is not None:
            rows = [_node_rows(member)]  # made once: it refers to the record's lists, which grow
            member.recorder.on_answer = partial(job.follower.look, lambda: rows)

    cluster.prepare(prepare)

    def body(node: SimTransport) -> Any:
        return program(node if wrap is None else wrap(node), node.recorder, job.config_json)

    started = time.perf_counter()  # for reporting only; no decision depends on it
    error: RunError | None = None
    unowned: list[CodeDoubt] = []
    try:
        with unawaited_noticed(partial(_notice, unowned)), stalls_reported(cluster.loop), collected_rarely():
            cluster.run([body] * len(cluster.members))
        error = verdict_of(cluster).error
    except RunError as stuck:
        error = verdict_of(cluster).error or stuck
    finally:
        if job.watcher is not None:
            job.watcher.end(telemetry(), str(error or ""))
    left = cluster.membership.departed.get(0)
    records = records_of(cluster.members, cluster.routes, left.time_s if left else None, cluster.latency_s)
    for record in records:
        record.samples = record.samples or [Ledger().notes()]  # a node that never began has none
    elapsed_s = max((record.finished_s or 0.0 for record in records), default=0.0)
    log = faults.log
    extra: dict[str, Any] = {"lost": verdict_of(cluster).lost, "faults": log.rows(), "noticed": unowned}
    extra["faults_left_out"] = log.left_out
    return RunRecord(records, elapsed_s, time.perf_counter() - started, error, extra)


def verdict_of(cluster: SimCluster) -> Verdict:
    """Return the verdict on *cluster*, which has finished, from its failures in virtual time.

    The error is the first failure. The failures that it caused on other nodes are not shown.
    """
    membership, names = cluster.membership, cluster.topology.workers
    verdict = Verdict(names, range(len(names)), membership.cut_off, in_order=True)
    for rank, before in membership.before.items():
        verdict.came(rank, before[-1].reason)
    for rank, reason in cluster.gone.items():
        (verdict.left if rank in cluster.has_left else verdict.died)(rank, reason)
    ends_s = sorted(departure.time_s for departure in membership.departed.values() if departure.reason == ENDED)
    for member, error in cluster.failures:
        failed_s = membership.departed[member.rank].time_s
        while ends_s and ends_s[0] <= failed_s:
            del ends_s[0]
            verdict.ended_well()
        if not isinstance(error, (NeedsValues, PeerLost)):
            error = NodeFailed(member.rank, member.name, traceback_of(error))
        verdict.raised(member.rank, error)
    for _ in ends_s:
        verdict.ended_well()
    return verdict


def _notice(unowned: list[CodeDoubt], what: str, at: str) -> None:
    """Record a coroutine that was never awaited, for the node that ran when it was freed.

    If no node ran, as after the end of a run, add it to *unowned*.
    """
    member = owner_of_task.get()
    if isinstance(member, SimMember):
        member.recorder.record.notice(NOT_AWAITED, what, at)
    else:
        unowned.append(CodeDoubt(NOT_AWAITED, what, at, 1))


class _Checkpoints:
    """A checkpoint channel that hands shards to *keeping* in zero virtual time.

    *lost* has the ranks that have died so far. No method yields to the loop, so checkpoints do not
    change a run's trace.
    """

    def __init__(self, keeping: CheckpointKeeping, lost: Collection[int]) -> None:
        self._keeping = keeping
        self._lost = lost

    async def hand_in(self, make: Callable[[], Shard]) -> None:
        self._keeping.add(make(), self._lost)

    async def aside(self, work: Callable[[], T]) -> T:
        return work()


def _may_rest(job: ClusterJob) -> bool:
    """Return whether ranks may rest: nothing except rank 0's first message may affect them."""
    keeping, topology = job.keeping, job.topology
    begins = keeping is None or not (keeping.keeps or keeping.restored is not None)
    # Over a link without latency a message might arrive before its receiver has begun.
    return (
        job.rests and begins and not job.faults and not job.worlds and job.time_s is None
        and topology is not None and all(link.latency_s > 0 and link.latency_trace is None for link in topology.links)
    )  # fmt: skip


def _watched(
    job: ClusterJob, cluster: SimCluster, log: FaultLog
) -> tuple[Callable[[], Telemetry], Callable[[int, int], None] | None]:
    """Return a function that makes telemetry of the run, and one to call after each step of a node.

    The second is None if nothing observes the run. The telemetry is the state at the current
    instant of virtual time. Observing a run does not affect it.
    """
    workers, on_progress = cluster.topology.workers, job.on_progress
    watcher, follower = job.watcher, job.follower
    # For each rank, the rows that have been read: each row is read only once.
    noted: defaultdict[int, RowContents] = defaultdict(RowContents)

    def telemetry() -> Telemetry:
        records = [node.recorder.record for node in cluster.members]
        sent = {record.rank: record.sent_to for record in records}
        over = {record.rank: record.sent_over for record in records}
        links = link_telemetry(workers, cluster.topology, sent, over)
        nodes = [_node_telemetry(cluster, node, noted[node.rank]) for node in cluster.members]
        return Telemetry(elapsed_s=cluster.loop.time(), nodes=nodes, links=links, faults=log.rows())

    def rows() -> list[NodeRows]:
        return list(map(_node_rows, cluster.members))

    def on_step(rank: int, step: int) -> None:
        if on_progress is not None:
            on_progress(rank, step)
        if watcher is not None:
            watcher.look(telemetry)
        if follower is not None:
            follower.look(rows)

    observers: list[Watcher | Follower] = [observer for observer in (watcher, follower) if observer is not None]
    for observer in observers:
        observer.begin(run_info(job.names, job.seed, job.about, "sim"))
    return telemetry, on_step if on_progress is not None or observers else None


def _node_rows(node: SimMember) -> NodeRows:
    record = node.recorder.record
    return NodeRows(node.name, record.metrics, node.recorder.evaluations, not node.alive, record.answers)


def _node_telemetry(cluster: SimCluster, node: SimMember, noted: RowContents) -> NodeTelemetry:
    record = node.recorder.record
    reason = cluster.gone.get(node.rank, "")
    noted.read(record.metrics, record.spans, node.recorder.evaluations)
    ended = "ended" if node.alive else "lost"
    gone = "expected" if reason == ABSENT else ended
    told = NodeTelemetry(
        name=node.name,
        rank=node.rank,
        state="running" if cluster.lives(node.rank) else gone,
        bytes_received=record.bytes_received,
        step=record.steps,
        compute_s=record.rest.compute_s if record.rest is not None else 0.0,
        computing=node.device_lock.locked(),
        waits=node.waits(),
        reason=reason,
    )
    return with_rows(told, noted, record.sent_to)


def check_options(options: Mapping[str, Any]) -> None:
    """Raise UsageError with all invalid *options*, if there are any."""
    check(SimOptions, options, "simulator")


def run_bodies(
    bodies: Sequence[Body], topology: Topology | None = None, seed: int = 0, *, comes_back: bool = False
) -> list[Any]:
    """Run each of *bodies* as a node, by default on a star of ideal links; return their results.

    With *comes_back*, a body may raise ComesBack, which crashes and restarts its node.
    """
    cluster = SimCluster(topology or star(len(bodies)), seed)
    cluster.streams.gated = comes_back

    async def life(body: Body, node: SimTransport) -> Any:
        try:
            return await body(node)
        except ComesBack:
            cluster.crash(node.rank, "crashed", returns=True)
            cluster.loop.clock.alarm_at(cluster.loop.time(), cluster.revive, node.rank)
            await asyncio.sleep(0)  # the crash cancels this task here
            raise

    return cluster.run([partial(life, body) for body in bodies] if comes_back else bodies)
