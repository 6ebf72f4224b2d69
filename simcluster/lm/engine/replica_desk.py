"""The desk of a replica: the router's orders come in, over messages or in the router's process, and events go out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import msgspec
import torch

from simcluster.lm.engine.desk import Cancel, EngineLoad, Order
from simcluster.lm.request import Logprobs, Reason, Request
from simcluster.payload import Message, Sendable, pack
from simcluster.transport import Transport

ORDER, EVENT = "order", "event"


@dataclass(frozen=True, slots=True)
class MovedRequest:
    """The next request that the replica at *place* has prefilled for this one is on its way."""

    place: int


Given: TypeAlias = tuple[Order | MovedRequest | None, int]
"""An order, and the place of the replica that decodes the request if this one only prefills it; -1 otherwise."""


async def ordered(group: Transport) -> Given:
    """Wait for the next order from the router on the first rank."""
    message = await group.recv(0, ORDER)
    return _read(message), message["to"] if "to" in message.payload.values else -1


class ReplicaEvents:
    """The sink of a replica on another rank than the first. Events leave in the order in which they happen."""

    def __init__(self, group: Transport, tasks: asyncio.TaskGroup) -> None:
        self._group, self._tasks = group, tasks

    def token(self, request: str, token: int, logprobs: Logprobs | None = None) -> None:
        more = {} if logprobs is None else {"logprobs": msgspec.json.encode(logprobs).decode()}
        self._send(kind="token", request=request, token=token, **more)

    def end(self, request: str, reason: Reason, message: str = "") -> None:
        self._send(kind="end", request=request, reason=reason, message=message)

    def load(self, load: EngineLoad) -> None:
        self._send(kind="load", load=msgspec.json.encode(load).decode())

    def moved(self, request: str) -> None:
        self._send(kind="moved", request=request)

    def done(self) -> None:
        self._send(kind="")

    def _send(self, **values: Any) -> None:
        self._tasks.create_task(self._group.send(0, EVENT, values))


class OrderedRequests:
    """A Source: *orders* waits for the next order. *taken* gets the request that comes from a place; *to* says where
    each one continues.
    """

    def __init__(self, orders: Callable[[], Awaitable[Given]], taken: Callable[[int], Awaitable[Request]]) -> None:
        self._orders, self._taken = orders, taken
        self.to: dict[str, int] = {}

    async def next(self) -> Order | None:
        order, to = await self._orders()
        if isinstance(order, MovedRequest):
            return await self._taken(order.place)
        if isinstance(order, Request) and to >= 0:
            self.to[order.id] = to
        return order


load_decoder = msgspec.json.Decoder(EngineLoad)
logprobs_decoder = msgspec.json.Decoder(Logprobs)
request_decoder = msgspec.json.Decoder(Request)


def request_text(request: Request) -> str:
    """Return *request* without its prompt, as a message has it."""
    return msgspec.json.encode(replace(request, prompt=())).decode()


def written(order: Order | MovedRequest | None, to: int) -> Sendable:
    """Return *order* as a message: a prompt is a tensor, since a header is short."""
    match order:
        case None:
            return {"kind": ""}
        case Cancel(id):
            return {"kind": "cancel", "request": id}
        case MovedRequest(place):
            return {"kind": "moved", "place": place}
    more = {"to": to} if to >= 0 else {}
    return pack(torch.tensor(order.prompt, dtype=torch.int32), kind="request", request=request_text(order), **more)


def _read(message: Message) -> Order | MovedRequest | None:
    match message["kind"]:
        case "":
            return None
        case "cancel":
            return Cancel(message["request"])
        case "moved":
            return MovedRequest(message["place"])
    return replace(request_decoder.decode(message["request"]), prompt=tuple(message.tensor.tolist()))
