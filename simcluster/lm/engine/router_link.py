"""The desk of a replica: it takes orders from the router and returns events.

On the first rank, the router is in the same process; on the others, orders and events are messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import msgspec
import torch
from msgspec import UNSET
from torch import Tensor

from simcluster.lm.engine.request_source import AnswerEnd, AnswerToken, Cancel, EngineLoad, Order
from simcluster.lm.request import Logprobs, Request, SamplingRules
from simcluster.payload import Message, Sendable, pack
from simcluster.transport import Transport

ORDER, EVENT = "order", "event"


@dataclass(frozen=True, slots=True)
class MovedRequest:
    """An order to receive a request, with its cache, from the replica that prefilled it.

    *place* is the index of that replica.
    """

    place: int


Given: TypeAlias = tuple[Order | MovedRequest | None, int]
"""An order, and the index of the replica that decodes the request if this one only prefills it.

The index is -1 if this replica does both.
"""


async def ordered(group: Transport) -> Given:
    """Wait for the next order from the router on the first rank of *group*."""
    message = await group.recv(0, ORDER)
    return _read(message), message["to"] if "to" in message.payload.values else -1


class ReplicaEvents:
    """The sink of a replica on any rank but the first. It sends events to the router, in order."""

    def __init__(self, group: Transport, tasks: asyncio.TaskGroup) -> None:
        self._group = group
        self._tasks = tasks

    def token(self, token: AnswerToken) -> None:
        more = {} if token.logprobs is None else {"logprobs": msgspec.json.encode(token.logprobs).decode()}
        self._send(kind="token", request=token.request, token=token.token, **more)

    def end(self, end: AnswerEnd) -> None:
        self._send(kind="end", request=end.request, reason=end.reason, message=end.message)

    def load(self, load: EngineLoad) -> None:
        self._send(kind="load", load=msgspec.json.encode(load).decode())

    def moved(self, request: str) -> None:
        self._send(kind="moved", request=request)

    def done(self) -> None:
        self._send(kind="")

    def _send(self, **values: Any) -> None:
        self._tasks.create_task(self._group.send(0, EVENT, values))


class OrderedRequests:
    """The RequestSource of a replica. *orders* waits for the router's next order.

    *taken* receives a prefilled request from the replica with the given index. *to* maps the id of
    each request that this replica only prefills to the index of the replica that decodes it.
    """

    def __init__(self, orders: Callable[[], Awaitable[Given]], taken: Callable[[int], Awaitable[Request]]) -> None:
        self._orders = orders
        self._taken = taken
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
rules_decoder = msgspec.msgpack.Decoder(SamplingRules)


def request_text(request: Request) -> str:
    """Return *request* without its prompt and rules, as JSON for the header of a message."""
    plain = replace(request.sampling, rules=UNSET)
    return msgspec.json.encode(replace(request, prompt=(), sampling=plain)).decode()


def rules_tensors(request: Request) -> tuple[Tensor, ...]:
    """Return the rules of *request* as a tensor of bytes: they may be too long for a header.

    If there are no rules, return no tensor.
    """
    rules = request.sampling.rules
    return (torch.frombuffer(bytearray(msgspec.msgpack.encode(rules)), dtype=torch.uint8),) if rules else ()


def request_of(text: str, prompt: Sequence[int], rules: Sequence[Tensor]) -> Request:
    """Return the request that `request_text` and `rules_tensors` encoded, with its *prompt*."""
    request = replace(request_decoder.decode(text), prompt=tuple(prompt))
    if not rules:
        return request
    found = rules_decoder.decode(rules[0].numpy().tobytes())
    return replace(request, sampling=replace(request.sampling, rules=found))


def written(order: Order | MovedRequest | None, to: int) -> Sendable:
    """Return *order* as a message. A prompt is a tensor, as it may exceed a header's limit."""
    match order:
        case None:
            return {"kind": ""}
        case Cancel(id):
            return {"kind": "cancel", "request": id}
        case MovedRequest(place):
            return {"kind": "moved", "place": place}
    more = {"to": to} if to >= 0 else {}
    tensors = torch.tensor(order.prompt, dtype=torch.int32), *rules_tensors(order)
    return pack(*tensors, kind="request", request=request_text(order), **more)


def _read(message: Message) -> Order | MovedRequest | None:
    match message["kind"]:
        case "":
            return None
        case "cancel":
            return Cancel(message["request"])
        case "moved":
            return MovedRequest(message["place"])
    prompt, *rules = message.tensors
    return request_of(message["request"], prompt.tolist(), rules)
