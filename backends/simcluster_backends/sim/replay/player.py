"""Replay a real run, node by node in its recorded order. `replay_cluster` is the only entry point."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from simcluster.errors import Left, NodeFailed, PeerLost, ReplayDiverged, RunError
from simcluster.process.intra_op import one_thread
from simcluster.runs.record import NodeRecord, RunRecord, kept_spans
from simcluster.runs.recorder import Recorder
from simcluster_backends.common.shortcuts import kept_shortcuts
from simcluster_backends.sim.replay.loop import ReplayLoop
from simcluster_backends.sim.replay.node import ReplayedChannel, ReplayedNode
from simcluster_backends.sim.replay.script import Script

if TYPE_CHECKING:
    from simcluster.job import ClusterJob
    from simcluster.runs.event_order import EventOrder


@one_thread()
def replay_cluster(job: ClusterJob, orders: Sequence[EventOrder]) -> RunRecord:
    """Replay *job* with one of *orders* per node, by rank. The times are the recorded ones.

    Raise ReplayDiverged, naming node and event, if the code departs from the record.
    """
    loop = ReplayLoop()  # type: ignore[abstract]
    program = resolve_name(job.program)
    scripts: list[Script] = []
    kept = kept_shortcuts(job.options.get("shortcuts", True))

    async def live(script: Script) -> NodeRecord:
        record: NodeRecord = script.node.recorder.record
        with suppress(Left):
            record = await program(script.node, script.node.recorder, job.config_json)
        return record

    try:
        for rank, (name, order) in enumerate(zip(job.names, orders, strict=True)):
            script = Script(rank, name, order, loop.play)
            scripts.append(script)
            recorder = Recorder(rank, name, partial(getattr, script, "now_s"), kept_spans(len(job.names)))
            recorder.losses_are_planned = False
            recorder.channel = ReplayedChannel(script, loop)
            script.node = ReplayedNode(script, job.names, job.seed, recorder, loop, order.answers, kept)
            script.node.to = lambda rank: scripts[rank].node
            script.node.on_step = job.on_progress
            script.root = loop.begin(script, live(script), f"rank {rank}")
        loop.play_all(scripts)
        if (stuck := next((script for script in scripts if script.open), None)) is not None:
            circle = _circle(stuck, scripts)
            culprit = _culprit(circle)
            others = (f"; {script.place} waits for {script.awaited}" for script in circle if script is not culprit)
            raise culprit.parted(f"the record has {culprit.awaited}, which never comes{''.join(others)}")
    finally:
        loop.end_all(scripts)
        for script in scripts:
            if script.root.done() and not script.root.cancelled():
                script.root.exception()  # mark it as retrieved, so that asyncio does not log it
        loop.close()
    records = [script.node.recorder.record for script in scripts]
    elapsed_s = max((record.finished_s or 0.0 for record in records), default=0.0)
    return RunRecord(records, elapsed_s, 0.0, _error(scripts))


def _circle(script: Script, scripts: Sequence[Script]) -> list[Script]:
    """Return the nodes that block *script*: a cycle, or the last node of its chain of waits."""
    chain = [script]
    held_up = {script.rank: script for script in scripts if script.open}
    while (source := held_up.get(chain[-1].source)) is not None and source not in chain:
        chain.append(source)
    return chain[chain.index(source) :] if source is not None else chain[-1:]


def _culprit(circle: Sequence[Script]) -> Script:
    """Return the node of *circle* with the record that is most likely wrong.

    A node that follows its record has sent everything that others received from it before the event
    that it waits for. So the culprit is the node whose awaited event is the latest, on a common
    clock. The fastest messages in both directions give the offset between two clocks, but not to
    the microsecond. So nodes with callbacks left go first, and the error names the others.
    """
    ahead_s = [0.0]
    for one, other in pairwise(circle):
        there, back = one.node.fastest_s.get(other.rank), other.node.fastest_s.get(one.rank)
        # How far the other clock is ahead, assuming equal latency in both directions.
        ahead_s.append(ahead_s[-1] + (0.0 if there is None or back is None else (back - there) / 2))
    due_s = {script.rank: script.due_s - ahead for script, ahead in zip(circle, ahead_s, strict=True)}
    return max(circle, key=lambda script: (bool(script.ready), due_s[script.rank]))


def _error(scripts: Sequence[Script]) -> RunError | None:
    """Return the run's error, if any: a failure of a node rather than the loss of a peer.

    If ReplayDiverged is that failure, raise it.
    """
    ended = [script for script in scripts if script.root.done() and not script.root.cancelled()]
    failed = [(script, script.root.exception()) for script in ended]
    found = [(script, error) for script, error in failed if error is not None]
    for script, error in found:
        if isinstance(error, ReplayDiverged):
            raise error
        if not isinstance(error, PeerLost):
            return NodeFailed(script.rank, script.name, "".join(traceback.format_exception(error)))
    return next((error for _, error in found if isinstance(error, PeerLost)), None)
