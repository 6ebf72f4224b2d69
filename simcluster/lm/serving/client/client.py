"""A load on a server: every request starts on time, even if earlier ones have not ended."""

from __future__ import annotations

import asyncio
import importlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from simcluster.errors import UsageError
from simcluster.lm.load.answers import AnsweredRequest
from simcluster.lm.load.arrivals import OfferedRequest
from simcluster.lm.serving.client.endpoint import Endpoint
from simcluster.lm.serving.client.events import DONE, MOST_LINE, BrokenAnswer, chunk_of, data_of, message_of
from simcluster.process.installed import install_extra

if TYPE_CHECKING:
    import httpx

CONNECT_S: Final = 10.0
KEPT_S: Final = 2.0
"""Limits on the time to connect, and on the time for which an idle connection is kept open.

The latter is short, so that this side closes idle connections before the server does.
"""


@dataclass
class LoadOutcome:
    """The *answers* to a load in the order of its requests, and *details* of each kind of failure.

    *late_s* is the longest delay with which a request started. If it exceeds a few milliseconds,
    this machine is too slow for the load.
    """

    answers: list[AnsweredRequest]
    details: dict[str, str] = field(default_factory=dict)
    late_s: float = 0.0


@dataclass
class _PartialAnswer:
    """The answer to a request so far. Times count from the start of the load."""

    token_s: list[float] = field(default_factory=list)
    end_s: float = 0.0
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    is_last: bool = False


async def load_on(
    endpoint: Endpoint,
    requests: Sequence[OfferedRequest],
    seed: int = 0,
    limit_s: float = 600.0,
    told: Callable[[int], None] = lambda done: None,
) -> LoadOutcome:
    """Send each of *requests* to *endpoint* at its arrival time; return the outcome.

    A request fails after *limit_s*. Whenever a request finishes or fails, *told* is called with the
    number of requests that have done so. Raise UsageError if httpx is not installed.
    """
    library = _httpx()
    outcome = LoadOutcome([])
    loop = asyncio.get_running_loop()
    done = 0
    # Without a limit on connections, no request waits for the end of another.
    limits = library.Limits(max_connections=None, keepalive_expiry=KEPT_S)
    timeout = library.Timeout(limit_s, connect=min(CONNECT_S, limit_s))

    async def one(number: int, request: OfferedRequest) -> AnsweredRequest:
        nonlocal done
        await asyncio.sleep(start_s + request.arrival_s - loop.time())
        outcome.late_s = max(outcome.late_s, loop.time() - start_s - request.arrival_s)
        seen = _PartialAnswer()
        try:
            async with asyncio.timeout(limit_s):  # limits the whole answer; httpx limits each read
                await _post(http, endpoint, endpoint.body(request, number, seed), seen, start_s)
            error = ""
        except (BrokenAnswer, TimeoutError, library.HTTPError, library.InvalidURL, OSError) as raised:
            error, detail = _kind(library, raised)
            outcome.details.setdefault(error, detail)
            seen.end_s = loop.time() - start_s
        done += 1
        told(done)
        prompt_tokens = request.prompt_tokens if seen.prompt_tokens is None else seen.prompt_tokens
        output_tokens = len(seen.token_s) if seen.output_tokens is None else seen.output_tokens
        return AnsweredRequest(request.arrival_s, tuple(seen.token_s), seen.end_s, prompt_tokens, output_tokens, error)

    # Ignore a proxy in the environment: its latency would be measured as well.
    async with library.AsyncClient(limits=limits, timeout=timeout, trust_env=False) as http:
        start_s = loop.time()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(number, request)) for number, request in enumerate(requests)]
    outcome.answers = [task.result() for task in tasks]
    return outcome


def _httpx() -> Any:
    try:
        return importlib.import_module("httpx")
    except ImportError:
        raise UsageError("--url", "no httpx", f"it to be installed: {install_extra('api')}") from None


async def _post(
    http: httpx.AsyncClient, endpoint: Endpoint, body: dict[str, Any], seen: _PartialAnswer, start_s: float
) -> None:
    """Post *body* and add the streamed answer to *seen*.

    Raise BrokenAnswer if the request is refused, or if the answer is not a complete stream.
    """
    now = asyncio.get_running_loop().time
    async with http.stream("POST", endpoint.url, json=body, headers=endpoint.headers) as answer:
        if answer.status_code != 200:
            raise BrokenAnswer(f"http {answer.status_code}", await _refusal(answer))
        kind = answer.headers.get("content-type", "")
        if not kind.startswith("text/event-stream"):
            raise BrokenAnswer("no stream", f"content of the type {kind[:80]!r}")
        async for data in data_of(answer.aiter_raw()):
            if data == DONE:
                seen.is_last = True
                break
            chunk = chunk_of(data)
            if chunk.has_text:
                seen.token_s.append(now() - start_s)
            if chunk.has_text or chunk.last:  # a chunk with the token counts may follow the end
                seen.end_s = now() - start_s
            seen.is_last = seen.is_last or chunk.last
            if chunk.output_tokens is not None:
                seen.prompt_tokens = chunk.prompt_tokens
                seen.output_tokens = chunk.output_tokens
    if not seen.is_last:
        raise BrokenAnswer("closed", "the stream ended before the answer did")
    if not seen.token_s:
        raise BrokenAnswer("empty", "an answer without text")


async def _refusal(answer: httpx.Response) -> str:
    """Return the message in the body of a refused request, or the beginning of that body.

    Not much more than MOST_LINE bytes are read.
    """
    body = b""
    async for part in answer.aiter_raw():
        body += part
        if len(body) > MOST_LINE:
            break
    try:
        return message_of(json.loads(body))
    except (ValueError, RecursionError):
        return message_of(body[:200].decode(errors="replace"))


def _kind(library: Any, raised: BaseException) -> tuple[str, str]:
    """Return (kind, detail) of a failure."""
    if isinstance(raised, BrokenAnswer):
        return raised.kind, raised.detail
    detail = message_of(str(raised) or type(raised).__name__)
    if isinstance(raised, (TimeoutError, library.TimeoutException)):
        return "timeout", detail
    if isinstance(raised, (OSError, library.ConnectError)):
        return "connect", detail
    return "closed" if isinstance(raised, (library.ReadError, library.RemoteProtocolError)) else "protocol", detail
