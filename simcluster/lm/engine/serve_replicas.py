"""Replicas: each rank holds the whole model, and one queue in front of them gives every request to one of them.

The first rank has the queue, and is a replica itself. A replica batches the requests that it is given, like any engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal, TypeAlias

import torch

from simcluster.collectives import subgroup
from simcluster.lm.engine.cache.prefixes import Prefixes
from simcluster.lm.engine.desk import COUNTS, Cancel, EngineLoad, NodeLoad, Order, RequestSource, TokenSink
from simcluster.lm.engine.engine import Engine
from simcluster.lm.engine.generate import FirstStage
from simcluster.lm.engine.meter import LoadMeter
from simcluster.lm.engine.queued import RequestSequence
from simcluster.lm.engine.replica_desk import (
    EVENT,
    ORDER,
    Given,
    MovedRequest,
    OrderedRequests,
    ReplicaEvents,
    load_decoder,
    logprobs_decoder,
    ordered,
    request_decoder,
    request_text,
    written,
)
from simcluster.lm.engine.scheduler import Scheduler
from simcluster.lm.engine.stage import Stage
from simcluster.lm.request import Logprobs, Reason, Request, rest
from simcluster.payload import pack
from simcluster.transport import Transport

CACHE = "cache"
"""The tag of a request's keys and values."""

MOST_REMEMBERED = 64
"""Prompts of each replica that the queue remembers."""

UNEVEN = 4
"""Requests by which a replica that may have a prompt's beginning may be ahead of the one with the fewest."""

Policy: TypeAlias = Literal["least_loaded", "round_robin", "prefix_aware"]


async def serve_replicas(
    node: Transport,
    stage: Stage,
    ranks: Sequence[int],
    scheduler: Scheduler,
    desk: tuple[RequestSource, TokenSink] | None = None,
    policy: Policy = "least_loaded",
    held: Mapping[str, int] | None = None,
    prefill: int = 0,
) -> None:
    """Answer requests with the whole model, *stage*, on each of *ranks*; the first one has the *desk*.

    least_loaded: a request goes to the replica that has the fewest, to the first of equals. round_robin: in turn.
    prefix_aware: to the one that was given the prompt with the longest common beginning, unless it has more than UNEVEN
    requests more than another; without one as least_loaded. *held*: the places in *ranks* of the replicas that have set
    requests aside, which get those again.

    The first *prefill* replicas only compute prompts, and the others only decode (DistServe, Zhong et al. 2024): with
    its first token, a request's keys and values go to one of those.
    """
    if node.rank not in ranks:
        return
    group, alone = subgroup(node, ranks), LoadMeter(subgroup(node, [node.rank]))
    async with asyncio.TaskGroup() as tasks:
        if desk is not None:
            router = _Router(group, *desk, policy, scheduler.limits.chunk_tokens, tasks, held or {}, prefill)
            orders: Callable[[], Awaitable[Given]] = router.own.get
            sink: _ReplicaSink | ReplicaEvents = _ReplicaSink(0, router)
            tasks.create_task(router.run())
        else:
            orders, sink = partial(ordered, group), ReplicaEvents(group, tasks)
        moves = _Moves(group, alone, stage, scheduler, tasks, sink)
        source = OrderedRequests(orders, moves.take)
        give = partial(moves.give, to=source.to) if group.rank < prefill else None
        await Engine(scheduler, source, sink, give).run(FirstStage(alone, stage, tasks))
        sink.done()


class _Moves:
    """The way of a request's keys and values from the replica that prefilled it to the one that decodes it."""

    def __init__(
        self,
        group: Transport,
        alone: LoadMeter,
        stage: Stage,
        scheduler: Scheduler,
        tasks: asyncio.TaskGroup,
        sink: _ReplicaSink | ReplicaEvents,
    ) -> None:
        self._group, self._alone, self._stage, self._scheduler = group, alone, stage, scheduler
        self._tasks, self._sink = tasks, sink

    async def give(self, sequence: RequestSequence, to: dict[str, int]) -> None:
        """Send *sequence* to the place that *to* has for it."""
        request, stage = sequence.request, self._stage
        copied = await self._alone.compute(
            stage.copy_out, sequence.slot, sequence.issued, cost=stage.costs.copy_of(sequence.issued)
        )
        tokens = torch.tensor(sequence.tokens, dtype=torch.int32)
        content = pack(*copied, tokens, request=request_text(request), prompt=len(request.prompt))
        self._tasks.create_task(self._group.send(to.pop(request.id), CACHE, content))
        self._sink.moved(request.id)

    async def take(self, place: int) -> Request:
        """Return the next request from *place*, set aside here with its keys and values if there is room."""
        message = await self._group.recv(place, CACHE)
        keys, values, found = message.tensors
        tokens, stage, size = found.tolist(), self._stage, message["prompt"]
        request = replace(request_decoder.decode(message["request"]), prompt=tuple(tokens[:size]))
        opened = self._scheduler.adopt(request, tokens)
        if opened is not None:
            cost = stage.costs.copy_of(len(tokens) - 1)
            try:
                await self._alone.compute(stage.take_in, opened, keys, values, cost=cost)
            except asyncio.CancelledError:
                self._scheduler.forget(opened.slot)  # it may not have come in
                raise
        left = rest(request, tokens[size:])
        assert isinstance(left, Request), "an answer that has ended is not given away"
        return left


class _Router:
    """The queue in front of the replicas in *group*: *own* has the orders of the first one's engine."""

    def __init__(
        self,
        group: Transport,
        source: RequestSource,
        sink: TokenSink,
        policy: Policy,
        chunk: int,
        tasks: asyncio.TaskGroup,
        held: Mapping[str, int],
        prefill: int,
    ) -> None:
        self._group, self._source, self.sink, self._policy, self._tasks = group, source, sink, policy, tasks
        self.own, self.own_ended = asyncio.Queue[Given](), asyncio.Event()
        self._owners: dict[str, int] = {}
        self._held, self._prefill = dict(held), prefill
        self._targets, self._cancelled = dict[str, int](), set[str]()
        self._in_hand, self._turn = [0] * group.size, 0
        self._given = [Prefixes(chunk) for _ in self._in_hand]
        self._loads: dict[int, EngineLoad] = {}

    async def run(self) -> None:
        """Hand out orders until the source ends."""
        size, prefill = self._group.size, self._prefill
        hearing = {place: self._tasks.create_task(self._hear(place)) for place in range(1, size)}
        while (order := await self._source.next()) is not None:
            if isinstance(order, Cancel):
                if order.id in self._owners:
                    self._cancelled.add(order.id)
                    self._hand(self._owners[order.id], order)
                continue
            if order.id in self._owners:
                raise ValueError(f"request {order.id!r}: one with this id has not ended yet")
            place = self._held.pop(order.id, -1)
            place = self._owners[order.id] = place if place >= 0 else self._choose(order)
            to = -1
            if place < prefill:
                to = self._targets[order.id] = min(range(prefill, size), key=self._in_hand.__getitem__)
                self._in_hand[to] += 1
            self._in_hand[place] += 1
            self._hand(place, order, to)
        # Those that decode may still get requests from the others.
        for places in (range(prefill), range(prefill, size)):
            for place in places:
                self._hand(place, None)
            await asyncio.gather(*(hearing[place] for place in places if place))
            if 0 in places:
                await self.own_ended.wait()

    def _choose(self, request: Request) -> int:
        self._turn += 1
        places = range(self._prefill or self._group.size)
        if self._policy == "round_robin":
            return (self._turn - 1) % len(places)
        place = min(places, key=self._in_hand.__getitem__)
        if self._policy == "prefix_aware":
            lengths = [given.longest(request.prompt)[1] for given in self._given]
            best = max(places, key=lengths.__getitem__)
            if lengths[best] and self._in_hand[best] <= self._in_hand[place] + UNEVEN:
                place = best
            self._given[place].keep(self._turn, request.prompt)
            if len(self._given[place]) > MOST_REMEMBERED:
                self._given[place].drop(next(iter(self._given[place])))
        return place

    def _hand(self, place: int, order: Order | MovedRequest | None, to: int = -1) -> None:
        if place == 0:
            self.own.put_nowait((order, to))
        else:
            self._tasks.create_task(self._group.send(place, ORDER, written(order, to)))

    async def _hear(self, place: int) -> None:
        """Pass on the events of a replica until its last one."""
        ends = _ReplicaSink(place, self)
        while kind := (message := await self._group.recv(place, EVENT))["kind"]:
            if kind == "token":
                has = "logprobs" in message.payload.values
                logprobs = logprobs_decoder.decode(message["logprobs"]) if has else None
                ends.token(message["request"], message["token"], logprobs)
            elif kind == "end":
                ends.end(message["request"], message["reason"], message["message"])
            elif kind == "moved":
                ends.moved(message["request"])
            else:
                ends.load(load_decoder.decode(message["load"]))

    def ended(self, place: int, request: str) -> None:
        self._in_hand[place] -= 1
        del self._owners[request]
        self._cancelled.discard(request)
        if request in self._targets:
            self._in_hand[self._targets.pop(request)] -= 1

    def moved(self, place: int, request: str) -> None:
        """Note that the replica at *place* has prefilled *request*, and has sent it to the one that decodes it."""
        self._in_hand[place] -= 1
        to = self._owners[request] = self._targets.pop(request)
        self._hand(to, MovedRequest(place))
        if request in self._cancelled:
            self._hand(to, Cancel(request))

    def loaded(self, place: int, load: EngineLoad) -> None:
        """Report all replicas together."""
        self._loads[place] = load
        loads = [self._loads[place] for place in sorted(self._loads)]
        nodes: tuple[NodeLoad, ...] = tuple(node for one in loads for node in one.nodes)
        sums = {name: sum(getattr(one, name) for one in loads) for name in ("running", "waiting", *COUNTS)}
        share = sum(one.cache_share for one in loads) / self._group.size
        self.sink.load(EngineLoad(cache_share=share, nodes=nodes, **sums))


class _ReplicaSink:
    """The sink of the replica at *place*, as the router has it."""

    def __init__(self, place: int, router: _Router) -> None:
        self._place, self._router = place, router

    def token(self, request: str, token: int, logprobs: Logprobs | None = None) -> None:
        self._router.sink.token(request, token, logprobs)

    def end(self, request: str, reason: Reason, message: str = "") -> None:
        self._router.ended(self._place, request)
        self._router.sink.end(request, reason, message)

    def load(self, load: EngineLoad) -> None:
        self._router.loaded(self._place, load)

    def moved(self, request: str) -> None:
        self._router.moved(self._place, request)

    def done(self) -> None:
        self._router.own_ended.set()
