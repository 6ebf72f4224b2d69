"""Replicas: each rank holds the whole model, and one queue in front of them gives every request to one of them.

The first rank has the queue, and is a replica itself. A replica batches the requests that it is given, like any engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import msgspec
import torch

from simcluster.collectives import subgroup
from simcluster.inference.engine.desk import Cancel, Load, NodeLoad, Order, Sink, Source
from simcluster.inference.engine.engine import Engine
from simcluster.inference.engine.generate import FirstStage
from simcluster.inference.engine.guesses import Guesser
from simcluster.inference.engine.meter import Metered
from simcluster.inference.engine.prefixes import Prefixes
from simcluster.inference.engine.scheduler import Scheduler
from simcluster.inference.engine.stage import Stage
from simcluster.inference.request import Logprobs, Reason, Request
from simcluster.payload import Message, Sendable, pack
from simcluster.transport import Transport

ORDER, EVENT = "order", "event"
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
    desk: tuple[Source, Sink] | None = None,
    policy: Policy = "least_loaded",
    held: Mapping[str, int] | None = None,
    guesser: Guesser | None = None,
) -> None:
    """Answer requests with the whole model, *stage*, on each of *ranks*; the first one has the *desk*.

    *guesser* is this replica's.

    least_loaded: a request goes to the replica that has the fewest, to the first of equals. round_robin: in turn.
    prefix_aware: to the one that was given the prompt with the longest common beginning, unless it has more than UNEVEN
    requests more than another; without one as least_loaded. *held*: the places in *ranks* of the replicas that have set
    requests aside, which get those again.
    """
    if node.rank not in ranks:
        return
    group, alone = subgroup(node, ranks), Metered(subgroup(node, [node.rank]))
    async with asyncio.TaskGroup() as tasks:
        if desk is not None:
            router = _Router(group, *desk, policy, scheduler.limits.chunk_tokens, tasks, held or {})
            own: tuple[Source, Sink] = router.own, _Ends(0, router)
            tasks.create_task(router.run())
        else:
            events = _Events(group, tasks)
            own = _Remote(group), events
        await Engine(scheduler, *own, guesser).run(FirstStage(alone, stage, tasks))
        if desk is None:
            events.done()


class _Router:
    """The queue in front of the replicas in *group*: *own* is the source of the first one's engine."""

    def __init__(
        self,
        group: Transport,
        source: Source,
        sink: Sink,
        policy: Policy,
        chunk: int,
        tasks: asyncio.TaskGroup,
        held: Mapping[str, int],
    ) -> None:
        self._group, self._source, self.sink, self._policy, self._tasks = group, source, sink, policy, tasks
        self.own = _Queue()
        self._owners: dict[str, int] = {}
        self._held = dict(held)
        self._in_hand, self._turn = [0] * group.size, 0
        self._given = [Prefixes(chunk) for _ in self._in_hand]
        self._loads: dict[int, Load] = {}

    async def run(self) -> None:
        """Hand out orders until the source ends."""
        hearing = [self._tasks.create_task(self._hear(rank)) for rank in range(1, self._group.size)]
        while (order := await self._source.next()) is not None:
            if isinstance(order, Cancel):
                if order.id in self._owners:
                    self._hand(self._owners[order.id], order)
                continue
            if order.id in self._owners:
                raise ValueError(f"request {order.id!r}: one with this id has not ended yet")
            place = self._held.pop(order.id, -1)
            place = self._owners[order.id] = place if place >= 0 else self._choose(order)
            self._in_hand[place] += 1
            self._hand(place, order)
        for place in range(self._group.size):
            self._hand(place, None)
        await asyncio.gather(*hearing)

    def _choose(self, request: Request) -> int:
        self._turn += 1
        if self._policy == "round_robin":
            return (self._turn - 1) % self._group.size
        place = min(range(self._group.size), key=self._in_hand.__getitem__)
        if self._policy == "prefix_aware":
            lengths = [given.longest(request.prompt)[1] for given in self._given]
            best = max(range(self._group.size), key=lengths.__getitem__)
            if lengths[best] and self._in_hand[best] <= self._in_hand[place] + UNEVEN:
                place = best
            self._given[place].keep(self._turn, request.prompt)
            if len(self._given[place]) > MOST_REMEMBERED:
                self._given[place].drop(next(iter(self._given[place])))
        return place

    def _hand(self, place: int, order: Order | None) -> None:
        if place == 0:
            self.own.put(order)
        else:
            self._tasks.create_task(self._group.send(place, ORDER, _written(order)))

    async def _hear(self, place: int) -> None:
        """Pass on the events of a replica until its last one."""
        ends = _Ends(place, self)
        while kind := (message := await self._group.recv(place, EVENT))["kind"]:
            if kind == "token":
                has = "logprobs" in message.payload.values
                logprobs = _logprobs_decoder.decode(message["logprobs"]) if has else None
                ends.token(message["request"], message["token"], logprobs)
            elif kind == "end":
                ends.end(message["request"], message["reason"], message["message"])
            else:
                ends.load(_load_decoder.decode(message["load"]))

    def ended(self, place: int, request: str) -> None:
        self._in_hand[place] -= 1
        del self._owners[request]

    def loaded(self, place: int, load: Load) -> None:
        """Report all replicas together."""
        self._loads[place] = load
        loads = [self._loads[place] for place in sorted(self._loads)]
        nodes: tuple[NodeLoad, ...] = tuple(node for one in loads for node in one.nodes)
        self.sink.load(
            Load(
                sum(one.running for one in loads),
                sum(one.waiting for one in loads),
                sum(one.cache_share for one in loads) / self._group.size,
                sum(one.preemptions for one in loads),
                nodes,
                sum(one.prefilled for one in loads),
                sum(one.proposed for one in loads),
                sum(one.accepted for one in loads),
            )
        )


class _Ends:
    """The sink of the replica at *place*, as the router has it."""

    def __init__(self, place: int, router: _Router) -> None:
        self._place, self._router = place, router

    def token(self, request: str, token: int, logprobs: Logprobs | None = None) -> None:
        self._router.sink.token(request, token, logprobs)

    def end(self, request: str, reason: Reason, message: str = "") -> None:
        self._router.ended(self._place, request)
        self._router.sink.end(request, reason, message)

    def load(self, load: Load) -> None:
        self._router.loaded(self._place, load)


class _Queue:
    """A source in this process."""

    def __init__(self) -> None:
        self._orders: asyncio.Queue[Order | None] = asyncio.Queue()
        self.put: Callable[[Order | None], None] = self._orders.put_nowait

    async def next(self) -> Order | None:
        return await self._orders.get()


class _Remote:
    """The source of a replica on another rank than the first."""

    def __init__(self, group: Transport) -> None:
        self._group = group

    async def next(self) -> Order | None:
        return _read(await self._group.recv(0, ORDER))


class _Events:
    """The sink of such a replica. Events leave in the order in which they happen."""

    def __init__(self, group: Transport, tasks: asyncio.TaskGroup) -> None:
        self._group, self._tasks = group, tasks

    def token(self, request: str, token: int, logprobs: Logprobs | None = None) -> None:
        more = {} if logprobs is None else {"logprobs": msgspec.json.encode(logprobs).decode()}
        self._send(kind="token", request=request, token=token, **more)

    def end(self, request: str, reason: Reason, message: str = "") -> None:
        self._send(kind="end", request=request, reason=reason, message=message)

    def load(self, load: Load) -> None:
        self._send(kind="load", load=msgspec.json.encode(load).decode())

    def done(self) -> None:
        self._send(kind="")

    def _send(self, **values: Any) -> None:
        self._tasks.create_task(self._group.send(0, EVENT, values))


_load_decoder = msgspec.json.Decoder(Load)
_logprobs_decoder = msgspec.json.Decoder(Logprobs)
_request_decoder = msgspec.json.Decoder(Request)


def _written(order: Order | None) -> Sendable:
    """Return *order* as a message: a prompt is a tensor, since a header is short."""
    if order is None:
        return {"kind": ""}
    if isinstance(order, Cancel):
        return {"kind": "cancel", "request": order.id}
    prompt = torch.tensor(order.prompt, dtype=torch.int32)
    return pack(prompt, kind="request", request=msgspec.json.encode(replace(order, prompt=())).decode())


def _read(message: Message) -> Order | None:
    if not message["kind"]:
        return None
    if message["kind"] == "cancel":
        return Cancel(message["request"])
    request = _request_decoder.decode(message["request"])
    return replace(request, prompt=tuple(message.tensor.tolist()))
