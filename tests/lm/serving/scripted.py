"""An engine that says what a script wants, in its own thread, and the server in front of it."""

from __future__ import annotations

import asyncio
import codecs
import json
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
from simcluster_backends.sockets.coordinator.service import AppServer

from simcluster.errors import Problem, UsageError
from simcluster.lm.engine.request_source import AnswerEnd, AnswerToken, Cancel, EngineLoad, NodeLoad
from simcluster.lm.request import NO_LOGPROBS, Logprobs, Request
from simcluster.lm.serving.desk.request_broker import MOST_OPEN, RequestBroker
from simcluster.lm.serving.setup import PlacementState
from simcluster.lm.serving.web.app import make_app
from simcluster.lm.serving.web.served_model import (
    LostNode,
    ModelPart,
    PredictedLatency,
    ServedModel,
    ServedPlacement,
    Site,
)
from simcluster.runs.answer_rows import Reason
from simcluster.web.login import Login

END = 256
CONTEXT = 4096
PATIENT = httpx.Timeout(300.0)
NODES = ("mini1", "mini2", "mini3")


class Bytes:
    """A language with a token per byte, and one that ends an answer."""

    ends = frozenset([END])
    has_chat = True

    def encode(self, text: str) -> list[int]:
        return list(text.encode("utf-8", "replace"))

    def decode(self, tokens: Sequence[int]) -> str:
        return bytes(token for token in tokens if token < END).decode("utf-8", "replace")

    def octets(self, tokens: Sequence[int]) -> bytes:
        return bytes(token for token in tokens if token < END)

    def decoder(self, begins: bool) -> BytesDecoder:
        return BytesDecoder()

    def render(self, messages: list[dict[str, str]]) -> list[int]:
        if messages[0]["role"] == "assistant":
            raise UsageError(Problem("messages[0].role", "'assistant'", "'user' or 'system'"))
        return self.encode("".join(f"{one['role']}: {one['content']}\n" for one in messages))

    def json_grammar(self, schema: Mapping[str, Any], *, or_text: bool = False) -> str:
        if "strange" in json.dumps(schema):
            raise UsageError("schema", "'strange'", "a type")
        return ("text or " if or_text else "") + json.dumps(schema)


class BytesDecoder:
    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        return self._decoder.decode(bytes([token]))

    def end(self) -> str:
        return self._decoder.decode(b"", final=True)


def likely(token: int, count: int) -> Logprobs | None:
    """Return the log-probabilities of *token*, 1/2, and of *count* likeliest ones: itself, then 0, 1, ... with 1/8."""
    if count == NO_LOGPROBS:
        return None
    others = [(one, math.log(1 / 8)) for one in range(count - 1)]
    return Logprobs(math.log(1 / 2), ((token, math.log(1 / 2)), *others)[:count])


@dataclass
class Script:
    """What the engine says to a prompt: *text*, and how it ends. If *stepwise*, each token waits for a permit."""

    text: str = "Paris."
    reason: Reason = "stop"
    message: str = ""
    stepwise: bool = False


def script(prompt: str) -> Script:
    """Return what the tests' engine says, by a word in the prompt."""
    if "step" in prompt:
        return Script("one two three", stepwise=True)
    if "fail at once" in prompt:
        return Script("", "error", "mini2 is lost: no heartbeat for 5 s")
    if "fail" in prompt:
        return Script("one two", "error", "mini2 is lost: no heartbeat for 5 s", stepwise=True)
    if "long" in prompt:
        return Script("x" * CONTEXT)
    return Script(" Paris. €")


@dataclass
class Engine:
    """Answers all requests at once. *seen* are all of them, *cancelled* the ids of those cancelled before their end."""

    front: RequestBroker
    script: Callable[[str], Script] = lambda prompt: Script()
    seen: list[Request] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)
    _permits: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    _tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _sent: int = 0

    def start(self) -> None:
        ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run(ready)), name="engine")
        self._thread.start()
        ready.wait()

    def stop(self) -> None:
        self.front.stop()
        self._thread.join()

    def let(self, tokens: int) -> None:
        """Let that number of tokens of stepwise scripts pass."""
        for _ in range(tokens):
            self.loop.call_soon_threadsafe(self._permits.release)

    def wait_for(self, happened: Callable[[], object]) -> None:
        with self.changed:
            self.changed.wait_for(happened)

    async def _run(self, ready: threading.Event) -> None:
        self.loop = asyncio.get_running_loop()
        self.front.open(self.loop.call_soon_threadsafe)
        ready.set()
        while (order := await self.front.next()) is not None:
            if isinstance(order, Cancel):
                if (task := self._tasks.get(order.id)) is not None:
                    task.cancel()
            else:
                self._tasks[order.id] = asyncio.create_task(self._answer(order))
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _answer(self, request: Request) -> None:
        with self.changed:
            self.seen.append(request)
            self.changed.notify_all()
        self._load()
        script = self.script(Bytes().decode(request.prompt))
        tokens = [*script.text.encode(), *([END] if script.reason == "stop" else [])]
        try:
            for token in tokens[: request.max_tokens]:
                if script.stepwise:
                    await self._permits.acquire()
                self.front.token(AnswerToken(request.id, token, likely(token, request.logprobs)))
                self._sent += 1
                self._load()
            reason: Reason = "length" if len(tokens) > request.max_tokens else script.reason
            message = script.message
        except asyncio.CancelledError:
            reason, message = "cancelled", ""
        del self._tasks[request.id]
        self.front.end(AnswerEnd(request.id, reason, message))
        self._load()
        with self.changed:
            self.cancelled += [request.id] if reason == "cancelled" else []
            self.changed.notify_all()

    def _load(self) -> None:
        nodes = tuple(NodeLoad(name, 0.1 * self._sent, 2304 * self._sent) for name in NODES)
        self.front.load(EngineLoad(len(self._tasks), 0, len(self._tasks) / 256, 0, nodes))


def a_site(front: RequestBroker, name: str = "tiny") -> Site:
    parts = tuple(ModelPart(name, (10 * i, 10 * (i + 1)), 45_000_000, 12_000_000) for i, name in enumerate(NODES))
    language: Any = Bytes()
    first = ServedPlacement(
        "pipeline", CONTEXT, parts, lambda prompt, answer: PredictedLatency(0.5, 20.0), predicted_for=("mac-mini-m4",)
    )
    return Site(
        front, ServedModel(name, END + 1, language, "sim", lambda placed: first if placed is None else later(placed))
    )


def later(placed: PlacementState) -> ServedPlacement:
    """Return *placed*, on the nodes of the script, as a server shows it."""
    layers, first = placed.layout.layers, placed.layout.first_layer
    parts = tuple(
        ModelPart(NODES[rank], (first(place), first(place) + layers[place]), 45_000_000, 12_000_000)
        for place, rank in enumerate(placed.layout.ranks)
    )
    lost = tuple(LostNode(NODES[rank], why) for rank, why in placed.lost.items())
    return ServedPlacement(
        placed.layout.kind, CONTEXT, parts, lambda prompt, answer: PredictedLatency(0.75, 10.0), lost
    )


@contextmanager
def engine(script: Callable[[str], Script] = lambda prompt: Script(), most: int = MOST_OPEN) -> Iterator[Engine]:
    made = Engine(RequestBroker(most), script)
    made.start()
    try:
        yield made
    finally:
        made.stop()


@contextmanager
def server(
    front: RequestBroker, token: str | None = None, login: Login | None = None, name: str = "tiny"
) -> Iterator[AppServer]:
    """The server at a free port."""
    made = AppServer(
        "127.0.0.1:0", lambda hosts: make_app(a_site(front, name), hosts, token, login), key="serve", connections=2000
    )
    made.start()
    try:
        yield made
    finally:
        made.close()
