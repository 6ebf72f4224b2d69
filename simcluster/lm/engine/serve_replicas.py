"""Replicas: each rank holds the whole model, and a router gives every request to one of them.

The first rank runs the router and is a replica itself. Each replica is an engine that batches the
requests that it gets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Literal, TypeAlias

import torch

from simcluster.collectives import subgroup
from simcluster.lm.engine.cache import Prefixes
from simcluster.lm.engine.engine import Engine
from simcluster.lm.engine.generate import FirstStage
from simcluster.lm.engine.meter import LoadMeter
from simcluster.lm.engine.request_sequence import RequestSequence
from simcluster.lm.engine.request_source import (
    COUNTS,
    AnswerEnd,
    AnswerToken,
    Cancel,
    EngineLoad,
    NodeLoad,
    Order,
    RequestSource,
    TokenSink,
)
from simcluster.lm.engine.router_link import (
    EVENT,
    ORDER,
    Given,
    MovedRequest,
    OrderedRequests,
    ReplicaEvents,
    load_decoder,
    logprobs_decoder,
    ordered,
    request_of,
    request_text,
    rules_tensors,
    written,
)
from simcluster.lm.engine.scheduler import Scheduler
from simcluster.lm.engine.stage import Stage
from simcluster.lm.request import Request, rest
from simcluster.payload import pack
from simcluster.transport import Transport

CACHE = "cache"
"""The tag of the message with a request's keys and values."""

MOST_REMEMBERED = 64
"""Limit on the number of prompts that the router remembers per replica."""

UNEVEN = 4
"""A replica with a shared prefix may have this many more requests than the least loaded one."""

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
    """Answer requests with a replica on each of *ranks*; *stage* is the whole model.

    The first rank has the *desk*. *policy* chooses the replica of a request. least_loaded takes the
    replica with the fewest requests; round_robin takes the replicas in turn; prefix_aware takes the
    replica that was given the prompt with the longest common beginning. prefix_aware acts as
    least_loaded if there is no common beginning, or if that replica has over UNEVEN requests more
    than another one.

    *held* maps the id of each request that a replica has set aside to the index of that replica in
    *ranks*: the request continues there. The first *prefill* replicas only compute prompts, and the
    others only decode (DistServe, Zhong et al. 2024). A request moves, with its keys and values,
    once it has its first token.
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
    """The transfer of keys and values from replicas that prefill to replicas that decode."""

    def __init__(
        self,
        group: Transport,
        alone: LoadMeter,
        stage: Stage,
        scheduler: Scheduler,
        tasks: asyncio.TaskGroup,
        sink: _ReplicaSink | ReplicaEvents,
    ) -> None:
        self._group = group
        self._alone = alone
        self._stage = stage
        self._scheduler = scheduler
        self._tasks = tasks
        self._sink = sink

    async def give(self, sequence: RequestSequence, to: dict[str, int]) -> None:
        """Send *sequence*, with its keys and values, to the replica that *to* maps its id to."""
        request, stage = sequence.request, self._stage
        copied = await self._alone.compute(
            stage.copy_out, sequence.slot, sequence.issued, cost=stage.costs.copy_of(sequence.issued)
        )
        tokens = torch.tensor(sequence.tokens, dtype=torch.int32)
        tensors = *copied, tokens, *rules_tensors(request)
        content = pack(*tensors, request=request_text(request), prompt=len(request.prompt))
        self._tasks.create_task(self._group.send(to.pop(request.id), CACHE, content))
        self._sink.moved(request.id)

    async def take(self, place: int) -> Request:
        """Receive the next request from replica *place*; return one for the rest of its answer.

        If there is room, the request is set aside with its keys and values, so that `resume` finds
        it. Otherwise this engine computes the keys and values again.
        """
        message = await self._group.recv(place, CACHE)
        keys, values, found, *rules = message.tensors
        tokens = found.tolist()
        stage = self._stage
        size = message["prompt"]
        request = request_of(message["request"], tokens[:size], rules)
        opened = self._scheduler.adopt(request, tokens)
        if opened is not None:
            cost = stage.costs.copy_of(len(tokens) - 1)
            try:
                await self._alone.compute(stage.take_in, opened, keys, values, cost=cost)
            except asyncio.CancelledError:
                # The stage may lack the cache, so the request cannot be resumed.
                self._scheduler.forget(opened.slot)
                raise
        left = rest(request, tokens[size:])
        assert isinstance(left, Request), "an answer that has ended is not given away"
        return left


class _Router:
    """The router of the replicas in *group*, on the first rank.

    *own* queues the orders for that rank.
    """

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
        self._group = group
        self._source = source
        self.sink = sink
        self._policy = policy
        self._tasks = tasks
        self.own = asyncio.Queue[Given]()
        self.own_ended = asyncio.Event()
        self._owners: dict[str, int] = {}
        self._held = dict(held)
        self._prefill = prefill
        self._targets = dict[str, int]()
        self._cancelled = set[str]()
        self._in_hand = [0] * group.size
        self._turn = 0
        self._given = [Prefixes(chunk) for _ in self._in_hand]
        self._loads: dict[int, EngineLoad] = {}

    async def run(self) -> None:
        """Pass on orders until the source ends, then end the replicas.

        Raise ValueError if a request has the id of one that has not ended yet.
        """
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
        # Replicas that only prefill end first, because they may still send requests to the others.
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
        """Pass on the events of replica *place* until the last one."""
        ends = _ReplicaSink(place, self)
        while kind := (message := await self._group.recv(place, EVENT))["kind"]:
            if kind == "token":
                has = "logprobs" in message.payload.values
                logprobs = logprobs_decoder.decode(message["logprobs"]) if has else None
                ends.token(AnswerToken(message["request"], message["token"], logprobs))
            elif kind == "end":
                ends.end(AnswerEnd(message["request"], message["reason"], message["message"]))
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
        """Order the replica that decodes *request* to receive it from *place*."""
        self._in_hand[place] -= 1
        to = self._owners[request] = self._targets.pop(request)
        self._hand(to, MovedRequest(place))
        if request in self._cancelled:  # the Cancel went to *place*, perhaps after the move
            self._hand(to, Cancel(request))

    def loaded(self, place: int, load: EngineLoad) -> None:
        """Store the *load* of replica *place*; report the combined load of all replicas."""
        self._loads[place] = load
        loads = [self._loads[place] for place in sorted(self._loads)]
        nodes: tuple[NodeLoad, ...] = tuple(node for one in loads for node in one.nodes)
        sums = {name: sum(getattr(one, name) for one in loads) for name in ("running", "waiting", *COUNTS)}
        share = sum(one.cache_share for one in loads) / self._group.size
        self.sink.load(EngineLoad(cache_share=share, nodes=nodes, **sums))


class _ReplicaSink:
    """The sink through which the router receives the events of replica *place*."""

    def __init__(self, place: int, router: _Router) -> None:
        self._place = place
        self._router = router

    def token(self, token: AnswerToken) -> None:
        self._router.sink.token(token)

    def end(self, end: AnswerEnd) -> None:
        self._router.ended(self._place, end.request)
        self._router.sink.end(end)

    def load(self, load: EngineLoad) -> None:
        self._router.loaded(self._place, load)

    def moved(self, request: str) -> None:
        self._router.moved(self._place, request)

    def done(self) -> None:
        self._router.own_ended.set()
