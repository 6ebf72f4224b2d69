"""The messages between a server's process and that of the engine: a line of JSON each."""

from __future__ import annotations

import asyncio
from typing import Final, TypeAlias

import msgspec

from simcluster.lm.engine.desk import EngineLoad
from simcluster.lm.request import Logprobs, Reason, Request
from simcluster.lm.serving.setup import PlacementState

MOST_BYTES: Final = 16 << 20
"""Limit of a line: a prompt of a million tokens has less."""


class RequestMessage(msgspec.Struct, tag="Ask", frozen=True):
    """To the engine: answer this request."""

    request: Request


class CancelMessage(msgspec.Struct, tag="Drop", frozen=True):
    """To the engine: end the request *id* now."""

    id: str


class StopMessage(msgspec.Struct, tag="Stop", frozen=True):
    """To the engine: no request follows."""


class HelloMessage(msgspec.Struct, tag="Hello", frozen=True):
    """From the engine, first: the *key* that its process was given, and the name of its *node*."""

    key: str
    node: str


class ReadyMessage(msgspec.Struct, tag="Ready", frozen=True):
    """From the engine: the model is loaded as *placed* says; None where only the first placement is known."""

    placed: PlacementState | None = None


class TokenMessage(msgspec.Struct, tag="Token", frozen=True, omit_defaults=True):
    """From the engine: the next token of the request *id*, with *logprobs* if it asks for them."""

    id: str
    token: int
    logprobs: Logprobs | None = None


class EndMessage(msgspec.Struct, tag="End", frozen=True):
    """From the engine: the request *id* has ended."""

    id: str
    reason: Reason
    message: str


class LoadMessage(msgspec.Struct, tag="Loaded", frozen=True):
    """From the engine: its state."""

    load: EngineLoad


class FailureMessage(msgspec.Struct, tag="Failed", frozen=True):
    """From the engine, last: why it ends."""

    why: str


Down: TypeAlias = RequestMessage | CancelMessage | StopMessage
Up: TypeAlias = HelloMessage | ReadyMessage | TokenMessage | EndMessage | LoadMessage | FailureMessage

_down, _up = msgspec.json.Decoder(Down), msgspec.json.Decoder(Up)


def written(message: Down | Up) -> bytes:
    return msgspec.json.encode(message) + b"\n"


async def read_down(reader: asyncio.StreamReader) -> Down | None:
    """Return the next message to the engine, None at the end."""
    line = await _line(reader)
    return None if line is None else _down.decode(line)


async def read_up(reader: asyncio.StreamReader) -> Up | None:
    """Return the next message from the engine, None at the end. Raise ValueError for what no engine sends."""
    line = await _line(reader)
    return None if line is None else _up.decode(line)


async def _line(reader: asyncio.StreamReader) -> bytes | None:
    """Return a whole line, None at the end; readline raises ValueError for one over the limit."""
    try:
        line = await reader.readline()
    except ConnectionError:
        return None
    return line if line.endswith(b"\n") else None
