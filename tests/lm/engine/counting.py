"""A desk of given requests, and a node that counts the bytes of the tensors that it sends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from simcluster.forwarding import Forwarding
from simcluster.lm.engine.request_source import AnswerEnd, AnswerToken, EngineLoad, Order
from simcluster.lm.request import Logprobs
from simcluster.payload import Sendable, as_payload, body_bytes
from simcluster.runs.answer_rows import Reason
from simcluster.transport import Transport


class Counting(Forwarding):
    """*node*; *counts* gets the bytes by the first part of a message's tag."""

    def __init__(self, node: Transport, counts: Counter[str]) -> None:
        super().__init__(node)
        self.counts = counts

    async def send(self, to: int, tag: str, content: Sendable) -> None:
        self.counts[tag.split("/")[0]] += body_bytes(as_payload(content))
        await self._node.send(to, tag, content)


class Desk:
    """A source of *orders* and a sink that keeps everything."""

    def __init__(self, orders: Iterable[Order]) -> None:
        self._orders = iter(orders)
        self.tokens: dict[str, list[int]] = {}
        self.logprobs: dict[str, list[Logprobs | None]] = {}
        self.ends: dict[str, tuple[Reason, str]] = {}
        self.loads: list[EngineLoad] = []

    async def next(self) -> Order | None:
        return next(self._orders, None)

    def token(self, token: AnswerToken) -> None:
        assert token.request not in self.ends
        self.tokens.setdefault(token.request, []).append(token.token)
        self.logprobs.setdefault(token.request, []).append(token.logprobs)

    def end(self, end: AnswerEnd) -> None:
        assert end.request not in self.ends
        self.ends[end.request] = end.reason, end.message

    def load(self, load: EngineLoad) -> None:
        self.loads.append(load)

    def __iter__(self) -> Any:
        return iter((self, self))  # unpacked as source and sink
