"""A small server with OpenAI's API that answers as its script says: a port on loopback, raw HTTP, bounded."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Write: TypeAlias = Callable[[bytes], Awaitable[None]]
Script: TypeAlias = Callable[[dict[str, Any], Write], Awaitable[None]]

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


@dataclass
class Asked:
    """What the server was asked: heads and bodies, in the order of arrival."""

    heads: list[str] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)


def event(choice: dict[str, Any] | None = None, **more: Any) -> bytes:
    choices = [] if choice is None else [{"index": 0, "finish_reason": None, **choice}]
    return f"data: {json.dumps({'object': 'chunk', 'choices': choices, **more})}\n\n".encode()


def delta(text: str) -> bytes:
    return event({"delta": {"content": text}})


END = event({"delta": {}, "finish_reason": "length"})
DONE = b"data: [DONE]\n\n"


async def well(body: dict[str, Any], write: Write) -> None:
    """Answer as a correct server: a role, a token per chunk, the end, usage."""
    await write(HEAD + event({"delta": {"role": "assistant", "content": ""}}))
    for number in range(body["max_tokens"]):
        await write(delta(f" {number}"))
        await write(b": keep-alive\n\n")
    usage = {"prompt_tokens": 40, "completion_tokens": body["max_tokens"]}
    await write(END + event(None, usage=usage) + DONE)


@asynccontextmanager
async def serving(script: Script) -> AsyncIterator[tuple[str, Asked]]:
    """Serve *script* for each request on a free port; yield its URL, and what it is asked."""
    asked = Asked()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def write(data: bytes) -> None:
            writer.write(data)
            await writer.drain()

        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = next(int(line.split(":")[1]) for line in head.splitlines() if line.lower().startswith("content-l"))
            asked.heads.append(head)
            asked.bodies.append(json.loads(await reader.readexactly(length)))
            await script(asked.bodies[-1], write)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client has gone
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}", asked
    finally:
        server.close()
