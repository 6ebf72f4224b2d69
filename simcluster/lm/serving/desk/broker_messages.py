"""The messages between the processes of a server and of its engine: a line of JSON each."""

from __future__ import annotations

import asyncio
from typing import Final, TypeAlias

import msgspec

from simcluster.lm.engine.request_source import AnswerEnd, AnswerToken, Cancel, EngineLoad
from simcluster.lm.request import Request
from simcluster.lm.serving.setup import PlacementState

MOST_BYTES: Final = 16 << 20
"""Limit on the bytes of a line. A prompt of a million tokens is shorter."""


class RequestMessage(msgspec.Struct, tag="Ask", frozen=True):
    """To the engine: answer this request."""

    request: Request


class StopMessage(msgspec.Struct, tag="Stop", frozen=True):
    """To the engine: no request follows."""


class HelloMessage(msgspec.Struct, tag="Hello", frozen=True):
    """From the engine, first: the *key* given to its process, and the name of its *node*."""

    key: str
    node: str


class ReadyMessage(msgspec.Struct, tag="Ready", frozen=True):
    """From the engine: the model is loaded at the placement *placed*; None is the first one."""

    placed: PlacementState | None = None


class LoadMessage(msgspec.Struct, tag="Loaded", frozen=True):
    """From the engine: its current load."""

    load: EngineLoad


class FailureMessage(msgspec.Struct, tag="Failed", frozen=True):
    """From the engine, last: the reason for its end."""

    why: str


Down: TypeAlias = RequestMessage | Cancel | StopMessage
Up: TypeAlias = HelloMessage | ReadyMessage | AnswerToken | AnswerEnd | LoadMessage | FailureMessage

_down, _up = msgspec.json.Decoder(Down), msgspec.json.Decoder(Up)


def written(message: Down | Up) -> bytes:
    return msgspec.json.encode(message) + b"\n"


async def read_down(reader: asyncio.StreamReader) -> Down | None:
    """Return the next message to the engine, or None at the end of the connection."""
    line = await _line(reader)
    return None if line is None else _down.decode(line)


async def read_up(reader: asyncio.StreamReader) -> Up | None:
    """Return the next message from the engine, or None at the end of the connection.

    Raise ValueError for a line that is not a message of an engine.
    """
    line = await _line(reader)
    return None if line is None else _up.decode(line)


async def _line(reader: asyncio.StreamReader) -> bytes | None:
    """Return a complete line, or None at the end. Raise ValueError for a line over the limit."""
    try:
        line = await reader.readline()
    except ConnectionError:
        return None
    return line if line.endswith(b"\n") else None
