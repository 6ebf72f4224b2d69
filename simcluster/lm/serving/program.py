"""The serving program: every node runs it in place of an algorithm, on any backend.

Each node loads its part of the model and waits until all nodes have loaded theirs. Arrivals of
requests count from that moment, by the clock of the placement's first node, which has the desk.
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
from simcluster.compute import HOST, DeviceTransport
from simcluster.lm.engine.engine import Engine
from simcluster.lm.engine.generate import generate
from simcluster.lm.engine.generate_tensor import generate_tensor
from simcluster.lm.engine.request_source import RequestSource, TokenSink
from simcluster.lm.engine.scheduler import Scheduler
from simcluster.lm.engine.serve_replicas import serve_replicas
from simcluster.lm.engine.sharded import EngineShard, RealShard, TimedShard
from simcluster.lm.engine.stage import RealStage, Stage, TimedStage
from simcluster.lm.serving.desk.offline_requests import BEGAN, EMPTY, PREFILLED, OfflineRequests, RequestCounter
from simcluster.lm.serving.parts import file_of, part_of, processor_device, share_of
from simcluster.lm.serving.serving_member import ServingMember
from simcluster.lm.serving.setup import PlacementState, Setup, read_setup
from simcluster.payload import pack
from simcluster.process.memory import peak_rss_bytes, return_freed_memory, rss_bytes
from simcluster.runs.record import NodeRecord
from simcluster.runs.recorder import Recorder
from simcluster.transport import FREE, Transport

Desk: TypeAlias = Callable[[PlacementState], AbstractAsyncContextManager[tuple[RequestSource, TokenSink]]]
"""A function that opens the source and the sink of requests on a placement's first node.

They are open from the moment at which all nodes have loaded the model until that group of nodes
ends.
"""

WHOLE: Final = ("alone", "replicas")
"""The kinds of placement in which each node has all layers and its own engine."""

DONE: Final = "done"
"""The tag of the message that ends the other nodes.

Until then, each of them stays, because it may have to replace the first node.
"""


def prepare(config_json: str) -> None:
    """Open the model's file before the clock starts."""
    setup = read_setup(config_json)
    if setup.numerics == "real":
        file_of(setup.model)


async def answer(node: Transport, recorder: Recorder, config_json: str) -> NodeRecord:
    """Answer the requests in *config_json*, a Setup as JSON. The first node records the tokens."""
    setup = read_setup(config_json)
    given = OfflineRequests(recorder, setup.requests)
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
    """A node's loaded part of the model, *made*, with the scheduler of its engine."""

    made: Stage | EngineShard
    scheduler: Scheduler

    def fits(self, setup: Setup) -> bool:
        """Return whether *setup* can use this part.

        It can if each node holds the whole model, the limits are equal, and there are enough
        blocks.
        """
        limits = self.scheduler.limits
        same = replace(limits, blocks=setup.limits.blocks) == setup.limits
        return setup.layout.kind in WHOLE and same and limits.blocks >= setup.limits.blocks


class ServingPart:
    """The work of a node that serves *setup*. Arrivals count from *began_s*, by the loop's clock.

    *began_s* is the moment at which all nodes had loaded the model for the first time, or None
    until then. If a node holds the whole model, its engine and caches survive a change of the
    placement.
    """

    def __init__(self, recorder: Recorder, setup: Setup) -> None:
        self._recorder = recorder
        self._setup = setup
        self.began_s: float | None = None
        self._loading_s = 0.0
        self._prefilled = 0
        self._whole: _LoadedPart | None = None

    async def take(self, node: Transport, desk: Desk) -> NodeRecord:
        """Serve on *node* until the source of *desk* ends; return the node's record."""
        setup, recorder = self._setup, self._recorder
        device = processor_device(setup, node.name)
        node = node if device == HOST else DeviceTransport(node, device)
        play = partial(self._play, desk=desk)
        if setup.recovery is not None and node.size > 1:
            ranks = setup.layout.ranks
            if recorder.incarnation > 0 and setup.layout.kind in WHOLE and node.rank in ranks:
                # Load before the node rejoins, because the others do not serve while it joins.
                await self._load(node, setup, ranks.index(node.rank))
            await ServingMember(node, setup, play, recorder.incarnation).run()
        elif node.rank in setup.layout.ranks:
            await play(node, setup, PlacementState(setup.layout, setup.limits))
        if setup.is_real:
            recorder.record.peak_rss_bytes = peak_rss_bytes()
        self._note(PREFILLED, self._prefilled)
        recorder.record.ended_well = True
        return recorder.finish(None)

    async def _play(self, node: Transport, setup: Setup, placed: PlacementState, desk: Desk) -> None:
        """Serve with one placement until its group ends.

        The placement has ranks of *node* in *setup*, and ranks of the whole cluster in *placed*.
        """
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
                    # A replica gets its last order long before the others end their last answers.
                    await node.recv(layout.ranks[0], DONE)
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
        """Return this node's part: the previous one, with its caches, if it fits; else load one."""
        if self._whole is not None and self._whole.fits(setup):
            self._whole.scheduler.set_aside()
            return self._whole
        return await self._load(node, setup, place)

    async def _load(self, node: Transport, setup: Setup, place: int) -> _LoadedPart:
        """Load and return the part of the node at index *place* of the placement."""
        self._whole = None
        record, before_s = self._recorder.record, self._recorder.record.compute_s
        if setup.is_real and not self._loading_s:
            return_freed_memory()
            self._note(EMPTY, rss_bytes() or 0)
        if setup.is_real:
            share_of.cache_clear()  # the cache keeps the last placement's weights in memory
        made = await node.compute(part_of, setup, place, node.name, cost=FREE)
        self._loading_s += record.compute_s - before_s
        self._note("loading_s", self._loading_s)
        # Without numerics, all prompts are zeros: they would seem to share prefixes.
        loaded = _LoadedPart(made, Scheduler(setup.limits, keeps_prefixes=setup.numerics == "real"))
        self._whole = loaded if setup.layout.kind in WHOLE else None
        return loaded

    async def _all_ready(self, group: Transport, setup: Setup) -> Mapping[str, int]:
        """Wait until all of *group* have loaded, and agree on `began_s`.

        Nodes without a part wait as well, because any of them may get the desk after a loss. On the
        first node, return request id -> rank in *group* of the node that can continue it; on
        others, return {}.
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
        """Send `began_s` and the requests set aside here to the first node, which may be a new one.

        Times in messages are by the run's clock, which is the loop's clock plus *offset_s*. On the
        first node, return request id -> rank in *group*, for the requests of all nodes; on others,
        return {}.
        """
        own = self._whole.scheduler.aside if self._whole is not None else []
        if group.rank > 0:
            began = {} if self.began_s is None else {"at_s": self.began_s + offset_s}
            names = torch.tensor(list(json.dumps(own).encode()), dtype=torch.uint8)  # it may be too long for a header
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
    """Answer the requests of *desk* on the first node.

    While no request is open, a real node does an empty piece of work at every heartbeat. Otherwise
    the watchdog would mistake an idle server for a hung one. Nothing is recorded: a server may be
    idle for months.
    """
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
            await node.compute(bool, cost=FREE)


async def _answer(
    node: Transport,
    setup: Setup,
    loaded: _LoadedPart,
    desk: tuple[RequestSource, TokenSink] | None,
    held: Mapping[str, int] | None = None,
) -> None:
    """Run *node*'s part of the placement's algorithm. Only the first node has a *desk*.

    *held* maps the id of each request that can continue to the index of its replica.
    """
    ranks = setup.layout.ranks
    made = loaded.made
    scheduler = loaded.scheduler
    if setup.layout.kind == "replicas":
        assert isinstance(made, RealStage | TimedStage), "a replica holds all layers"
        prefill = setup.layout.prefill
        return await serve_replicas(node, made, ranks, scheduler, desk, setup.policy, held, prefill)
    engine = Engine(scheduler, *desk) if desk is not None else None
    if isinstance(made, RealShard | TimedShard):
        return await generate_tensor(node, made, ranks, engine)
    assert isinstance(made, RealStage | TimedStage), "a stage holds whole layers"
    await generate(node, made, ranks, engine)
