"""The serving program: every node runs it in place of an algorithm, on any backend.

A node loads its share of the model, and all wait for each other. The clock of arrivals starts there, at the first node
of the placement, which has the desk.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeAlias

import torch

from simcluster.collectives import barrier, subgroup
from simcluster.lm.engine.desk import RequestSource, TokenSink
from simcluster.lm.engine.engine import Engine
from simcluster.lm.engine.generate import generate
from simcluster.lm.engine.generate_tensor import generate_tensor
from simcluster.lm.engine.scheduler import Scheduler
from simcluster.lm.engine.serve_replicas import serve_replicas
from simcluster.lm.engine.sharded import EngineShard, RealShard, TimedShard
from simcluster.lm.engine.stage import RealStage, Stage, TimedStage
from simcluster.lm.serving.desk.desks import BEGAN, EMPTY, PREFILLED, OfflineRequests, RequestCounter
from simcluster.lm.serving.parts import file_of, part_of, share_of
from simcluster.lm.serving.seat import ServingMember
from simcluster.lm.serving.setup import PlacementState, Setup, read_setup
from simcluster.payload import pack
from simcluster.process.memory import peak_rss_bytes, return_freed_memory, rss_bytes
from simcluster.runs.record import NodeRecord
from simcluster.runs.recorder import Recorder
from simcluster.transport import FREE, Transport

Desk: TypeAlias = Callable[[PlacementState], AbstractAsyncContextManager[tuple[RequestSource, TokenSink]]]
"""Opens the source and the sink on the first node of a placement, once the model is loaded everywhere, until that group
ends.
"""

WHOLE: Final = ("alone", "replicas")
"""The kinds of placement in which a node has all layers, and an engine."""

DONE: Final = "done"
"""The tag of the message with which the first node lets all others end: until then each may have to replace it."""


def prepare(config_json: str) -> None:
    """Open the model's file before the clock starts."""
    setup = read_setup(config_json)
    if setup.numerics == "real":
        file_of(setup.model)


async def answer(node: Transport, recorder: Recorder, config_json: str) -> NodeRecord:
    """Answer the requests in *config_json*, a Setup; record the tokens at the first node."""
    setup = read_setup(config_json)
    given = OfflineRequests(node, setup.requests)
    part = ServingPart(recorder, setup)

    @asynccontextmanager
    async def desk(placed: PlacementState) -> AsyncIterator[tuple[RequestSource, TokenSink]]:
        given.begin(part.began_s)
        yield given, given

    record = await part.take(node, desk)
    for name, count in given.counts.items():
        if count:
            recorder.metric_at(recorder.now(), 0, name, count)
    return record


@dataclass(frozen=True)
class _LoadedPart:
    """A node's part, *made*, with the scheduler of its engine."""

    made: Stage | EngineShard
    scheduler: Scheduler

    def fits(self, setup: Setup) -> bool:
        """Whether it is a whole model with room for what *setup* asks of one."""
        limits = self.scheduler.limits
        same = replace(limits, blocks=setup.limits.blocks) == setup.limits
        return setup.layout.kind in WHOLE and same and limits.blocks >= setup.limits.blocks


class ServingPart:
    """A node's part of *setup*. *began_s* is when all nodes had loaded first, by the loop's clock; None until then.

    An engine over a whole model is kept when the placement changes, with its caches.
    """

    def __init__(self, recorder: Recorder, setup: Setup) -> None:
        self._recorder, self._setup = recorder, setup
        self.began_s: float | None = None
        self._loading_s, self._prefilled = 0.0, 0
        self._whole: _LoadedPart | None = None

    async def take(self, node: Transport, desk: Desk) -> NodeRecord:
        """Serve until the source of *desk* ends; return the filled record."""
        setup, recorder = self._setup, self._recorder
        play = partial(self._play, desk=desk)
        if setup.recovery is not None and node.size > 1:
            ranks = setup.layout.ranks
            if recorder.incarnation > 0 and setup.layout.kind in WHOLE and node.rank in ranks:
                await self._load(node, setup, ranks.index(node.rank))  # before it asks in: the others would wait for it
            await ServingMember(node, setup, play, recorder.incarnation).run()
        elif node.rank in setup.layout.ranks:
            await play(node, setup, PlacementState(setup.layout, setup.limits))
        if setup.is_real:
            recorder.record.peak_rss_bytes = peak_rss_bytes()
        self._note(PREFILLED, self._prefilled)
        recorder.record.ended_well = True
        return recorder.finish(None)

    async def _play(self, node: Transport, setup: Setup, placed: PlacementState, desk: Desk) -> None:
        """Serve as one of the nodes of *setup*'s placement, with the numbers that they have for *node*."""
        layout = setup.layout
        others = [rank for rank in range(node.size) if rank not in layout.ranks] if setup.recovery is not None else []
        together = subgroup(node, (*layout.ranks, *others))
        if node.rank in others:
            self._whole = None
            await self._all_ready(together, setup)
            await node.recv(layout.ranks[0], DONE)
            return
        place = layout.ranks.index(node.rank)
        loaded = await self._loaded(node, setup, place)
        held, before = await self._all_ready(together, setup), loaded.scheduler.prefilled
        try:
            if place > 0:
                await _answer(node, setup, loaded, None)
                if setup.recovery is not None:
                    await node.recv(layout.ranks[0], DONE)  # a replica runs out of orders long before the last answer
            else:
                async with desk(placed) as (source, sink):
                    await _with_desk(node, setup, loaded, (source, sink), held)
                if setup.recovery is not None:
                    for rank in (*layout.ranks[1:], *others):
                        await node.send(rank, DONE, None)
        finally:
            self._prefilled += loaded.scheduler.prefilled - before
        self._note("weight_bytes", loaded.made.weight_bytes)
        self._note("cache_bytes", loaded.made.peak_cache_bytes)
        self._note("layers", layout.layers[place])

    async def _loaded(self, node: Transport, setup: Setup, place: int) -> _LoadedPart:
        """Return this node's part: the one of the group before, if it is the same, with what is cached there."""
        if self._whole is not None and self._whole.fits(setup):
            self._whole.scheduler.set_aside()
            return self._whole
        return await self._load(node, setup, place)

    async def _load(self, node: Transport, setup: Setup, place: int) -> _LoadedPart:
        """Load the part of the *place*-th node of the placement."""
        self._whole = None
        record, before_s = self._recorder.record, self._recorder.record.compute_s
        if setup.is_real and not self._loading_s:
            return_freed_memory()
            self._note(EMPTY, rss_bytes() or 0)
        if setup.is_real:
            share_of.cache_clear()  # of another placement
        made = await node.compute(part_of, setup, place, cost=FREE)
        self._loading_s += record.compute_s - before_s
        self._note("loading_s", self._loading_s)
        # Prompts of sizes alone would all be equal.
        loaded = _LoadedPart(made, Scheduler(setup.limits, keeps_prefixes=setup.numerics == "real"))
        self._whole = loaded if setup.layout.kind in WHOLE else None
        return loaded

    async def _all_ready(self, group: Transport, setup: Setup) -> Mapping[str, int]:
        """Wait until all of *group* have their parts, those without one too: each may have the desk after a loss.

        Return, on the first one, the places of the nodes that can continue requests.
        """
        await barrier(group, "loaded")
        at_s = self._recorder.now()
        offset_s = at_s - asyncio.get_running_loop().time()
        held = await self._tell_first(group, offset_s) if setup.recovery is not None else {}
        if self.began_s is None:
            self.began_s = at_s - offset_s
            self._recorder.metric_at(at_s, 0, BEGAN, 0.0)
        return held

    async def _tell_first(self, group: Transport, offset_s: float) -> Mapping[str, int]:
        """Tell the first of *group*, which may have come late, when all had loaded first, by the run's clock, and which
        requests were set aside here. It returns the places of all of those.
        """
        own = self._whole.scheduler.aside if self._whole is not None else []
        if group.rank > 0:
            began = {} if self.began_s is None else {"at_s": self.began_s + offset_s}
            names = torch.tensor(list(json.dumps(own).encode()), dtype=torch.uint8)  # a header is short
            await group.send(0, BEGAN, pack(names, **began))
            return {}
        told = [await group.recv(rank, BEGAN) for rank in range(1, group.size)]
        known_s = [message["at_s"] for message in told if "at_s" in message.payload.values]
        if self.began_s is None and known_s:
            self.began_s = min(known_s) - offset_s
        names_by_place = [own, *(json.loads(bytes(message.tensor.tolist())) for message in told)]
        return {name: place for place, names in enumerate(names_by_place) for name in names}

    def _note(self, name: str, value: float) -> None:
        self._recorder.metric_at(self._recorder.now(), 0, name, value)


async def _with_desk(
    node: Transport, setup: Setup, loaded: _LoadedPart, desk: tuple[RequestSource, TokenSink], held: Mapping[str, int]
) -> None:
    """Do the first node's part. While no request is there, real nodes record that: a watchdog stops those that hang."""
    attended = RequestCounter(*desk)
    async with asyncio.TaskGroup() as tasks:
        beating = tasks.create_task(_beat(node, setup.beat_s, attended)) if setup.is_real else None
        await _answer(node, setup, loaded, (attended, attended), held)
        if beating is not None:
            beating.cancel()


async def _beat(node: Transport, every_s: float, attended: RequestCounter) -> None:
    while True:
        await asyncio.sleep(every_s)
        if not attended.in_hand:
            node.record(step=0, idle=1)


async def _answer(
    node: Transport,
    setup: Setup,
    loaded: _LoadedPart,
    desk: tuple[RequestSource, TokenSink] | None,
    held: Mapping[str, int] | None = None,
) -> None:
    """Do *node*'s part of the page that *setup*'s placement asks for."""
    ranks, made, scheduler = setup.layout.ranks, loaded.made, loaded.scheduler
    if setup.layout.kind == "replicas":
        assert isinstance(made, RealStage | TimedStage), "a replica holds all layers"
        prefill = setup.layout.prefill
        return await serve_replicas(node, made, ranks, scheduler, desk, setup.policy, held, prefill)
    engine = Engine(scheduler, *desk) if desk is not None else None
    if isinstance(made, RealShard | TimedShard):
        return await generate_tensor(node, made, ranks, engine)
    assert isinstance(made, RealStage | TimedStage), "a stage holds whole layers"
    await generate(node, made, ranks, engine)
