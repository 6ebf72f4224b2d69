"""Run worlds as SimPy processes on the clock of a simulated cluster, within limits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from simcluster.errors import ENDED
from simcluster.process.generators import RANKS, of_rank
from simcluster.rng import seed_sequence
from simcluster_backends.common.worlds import limits
from simcluster_backends.common.worlds.acts import WorldActs
from simcluster_backends.common.worlds.handles import ClusterControl
from simcluster_backends.common.worlds.limits import EventBudget, world_code
from simcluster_backends.sim.loop.clock import Endless
from simcluster_backends.sim.loop.event_loop import LoopDrained
from simcluster_backends.sim.worlds.stage import SimStage

if TYPE_CHECKING:
    import numpy as np
    from simpy.events import Event

    from simcluster.worlds import PlannedWorld
    from simcluster_backends.sim.cluster import SimCluster
    from simcluster_backends.sim.faults import SimFaults

RESTARTS_LIMIT = 10_000
"""Limit on the restarts by worlds since a node has last recorded a new highest step, or has ended."""


class WorldRunner:
    """The *worlds* of one run of *cluster*, which act through *faults*."""

    def __init__(self, worlds: Sequence[PlannedWorld], cluster: SimCluster, faults: SimFaults) -> None:
        self._worlds = worlds
        self._cluster = cluster
        self._generators: Any = None  # the global generators, as the worlds' own draws have left them
        self._turns = self._idle_events = 0  # events of worlds since a node's last turn
        self._budget = EventBudget()
        stage = SimStage(cluster, faults)
        self._acts = [WorldActs(world.name, stage) for world in worlds]
        self._restarts = self._vain_restarts_from = 0  # all restarts, and those before the last progress
        self._progress = (0, 0)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Begin all worlds before any node begins; within the block, they run on the clock."""
        clock, seed = self._cluster.loop.clock, self._cluster.seed
        streams: dict[str, np.random.Generator] = {}
        with ExitStack() as stack:
            if self._worlds:
                stack.enter_context(RANKS.own(seed_sequence(seed, "world"), lambda *_: None))
                self._generators = of_rank.get()
                of_rank.set(None)  # nodes that begin from here are given their own
                clock.handle = self._handle
            for world, acts in zip(self._worlds, self._acts, strict=True):
                clock.process(world.begun(clock, ClusterControl(acts, streams)))
            for _ in self._worlds:
                clock.step()  # SimPy's own event begins a process, before anything else at this instant
            yield

    def _handle(self, event: Event) -> None:
        RANKS.enter(self._generators)
        clock = self._cluster.loop.clock
        with world_code(lambda: clock.resumed):
            clock.happen(event)
            self._budget.count(clock.now_s)
        self._check_restarts()
        self._check_idle()

    def _check_restarts(self) -> None:
        """Raise Endless if worlds restart nodes again and again before any has got further than before."""
        restarts = sum(acts.restarts for acts in self._acts)
        if restarts == self._restarts:
            return
        self._restarts = restarts
        ended = sum(departure.reason == ENDED for departure in self._cluster.membership.departed.values())
        progress = (max(member.recorder.step for member in self._cluster.members), ended)
        if progress != self._progress:
            self._progress, self._vain_restarts_from = progress, restarts
        elif restarts - self._vain_restarts_from >= RESTARTS_LIMIT:
            raise Endless(f"no new step and no end of a node in {RESTARTS_LIMIT:,} restarts by the world")

    def _check_idle(self) -> None:
        """Raise LoopDrained if nothing but worlds has gone on for long, and no alarm of a node is set."""
        loop = self._cluster.loop
        self._idle_events = self._idle_events + 1 if loop.turns == self._turns else 1
        self._turns = loop.turns
        if self._idle_events > limits.EVENTS_LIMIT:
            self._idle_events = 0
            loop.clock.settle_now()  # it sets the alarms of messages that may leave again
            if not loop.clock.has_alarm():
                raise LoopDrained(f"no node has gone on in {limits.EVENTS_LIMIT:,} events of the world")
