"""The reply to a request, whole or as a stream. If the client leaves, its answers are cancelled."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import asdict
from typing import Any, Final

from starlette.responses import Response

from simcluster.lm.engine.request_source import AnswerEnd
from simcluster.lm.serving.web import chunks
from simcluster.lm.serving.web.choice import Choice, ChoicePiece
from simcluster.lm.serving.web.chunks import ReplyShape
from simcluster.lm.serving.web.errors import ApiError, send_json
from simcluster.lm.serving.web.served_model import Site
from simcluster.lm.serving.web.token_rows import TokenRow, shaped
from simcluster.web.requests import Receive, Scope, Send

KEEP_ALIVE_S: Final = 10.0
TIMINGS: Final = "x-simcluster-timings"
IGNORED: Final = "x-simcluster-ignored"
"""The header with the keys of the request that have no effect."""

STREAM: Final = ((b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-store"))


class Reply(Response):
    """A response that sends *choices* in *shape*: answers to prompts of *prompt_tokens* in all.

    A stream begins with the first token, so that an earlier error can still set the status. If the
    first token takes long, the stream begins with a keep-alive comment instead. The predicted times
    are those of the placement at the end of the answer. *ignored* are keys without effect.
    """

    def __init__(
        self, site: Site, choices: Sequence[Choice], shape: ReplyShape, prompt_tokens: int, ignored: Sequence[str],
        *, streams: bool, usage: bool,
    ) -> None:  # fmt: skip
        super().__init__(None)
        self._site = site
        self._choices = choices
        self._shape = shape
        self._prompt_tokens = prompt_tokens
        self._own_headers = [(IGNORED.encode(), ", ".join(ignored).encode())] if ignored else []
        self._streams = streams
        self._usage = usage
        self._has_begun = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Watch the client: if it leaves, its answers must not take more of the engine's time.
        leaving = asyncio.create_task(_gone(receive))
        sending = asyncio.create_task(self._stream(send) if self._streams else self._whole(send))
        try:
            await asyncio.wait({leaving, sending}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for choice in self._choices:
                choice.cancel()
            leaving.cancel()
            sending.cancel()
            await asyncio.gather(leaving, sending, return_exceptions=True)
        if not sending.cancelled():
            sending.result()  # raises any error of sending

    async def _pieces(self) -> AsyncGenerator[ChoicePiece | None, None]:
        """Yield the pieces of all choices as they come, and None after KEEP_ALIVE_S without any."""
        # One piece at a time: a client that does not read must not let them pile up here.
        queue = asyncio.Queue[ChoicePiece | Exception](1)

        async def pass_on(choice: Choice) -> None:
            try:
                async for piece in choice.pieces():
                    await queue.put(piece)
            except Exception as error:
                await queue.put(error)

        tasks = [asyncio.create_task(pass_on(choice)) for choice in self._choices]
        left = len(tasks)
        try:
            while left:
                piece = None
                with suppress(TimeoutError):
                    piece = await asyncio.wait_for(queue.get(), KEEP_ALIVE_S)
                if isinstance(piece, Exception):
                    raise piece
                left -= piece is not None and piece.end is not None
                yield piece
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _stream(self, send: Send) -> None:
        async with aclosing(self._pieces()) as pieces:
            await self._send_stream(send, pieces)

    async def _send_stream(self, send: Send, pieces: AsyncIterator[ChoicePiece | None]) -> None:
        begun = set[int]()

        async def out(*events: bytes) -> None:
            if not self._has_begun:
                self._has_begun = True
                await send({"type": "http.response.start", "status": 200, "headers": [*STREAM, *self._own_headers]})
            await send({"type": "http.response.body", "body": b"".join(events), "more_body": True})

        async for piece in pieces:
            if piece is None:
                await out(chunks.KEEP_ALIVE)
                continue
            error = _error_of(piece.end)
            if error is not None and not self._has_begun:
                await _send_error(send, error)
                return
            events = list[bytes]()
            if self._shape.kind == "chat" and piece.choice not in begun:
                events.append(self._shape.chunk(piece.choice, "", role="assistant"))
            begun.add(piece.choice)
            if piece.text or piece.rows:
                events.append(self._shape.chunk(piece.choice, piece.text, logprobs=self._shaped(piece.rows)))
            if piece.call is not None:
                events.append(self._shape.chunk(piece.choice, None, call=piece.call))
            if error is not None:
                await out(*events, chunks.event(error.to_dict()))
                break
            if piece.end is not None:
                events.append(self._shape.chunk(piece.choice, None, finish=piece.finish))
            if events:
                await out(*events)
        else:
            await out(*self._last_events())
        await send({"type": "http.response.body", "body": chunks.DONE, "more_body": False})

    def _last_events(self) -> list[bytes]:
        usage = [self._shape.usage(self._counts())] if self._usage else []
        return [*usage, chunks.comment("timings", self._timings())]

    async def _whole(self, send: Send) -> None:
        async with aclosing(self._pieces()) as pieces:
            await self._send_whole(send, pieces)

    async def _send_whole(self, send: Send, pieces: AsyncIterator[ChoicePiece | None]) -> None:
        texts = [""] * len(self._choices)
        rows: list[list[TokenRow]] = [[] for _ in self._choices]
        lasts = dict[int, ChoicePiece]()
        async for piece in pieces:
            if piece is None:
                continue
            texts[piece.choice] += piece.text
            rows[piece.choice] += piece.rows
            error = _error_of(piece.end)
            if error is not None:
                await _send_error(send, error)
                return
            lasts[piece.choice] = piece
        found = [
            self._shape.choice(number, texts[number], last.finish or "", self._shaped(rows[number]), last.call)
            for number, last in sorted(lasts.items())
        ]
        body = json.dumps(self._shape.whole(found, self._counts())).encode()
        timings = (TIMINGS.encode(), json.dumps(self._timings()).encode())
        await send_json(send, 200, body, timings, *self._own_headers)

    def _shaped(self, rows: Sequence[TokenRow]) -> dict[str, Any] | None:
        return shaped(self._shape.kind, rows, self._site.served.language)

    def _counts(self) -> dict[str, int]:
        return chunks.usage_of(self._prompt_tokens, sum(len(choice.tokens) for choice in self._choices))

    def _timings(self) -> dict[str, Any]:
        """Return measured and predicted times; only a single answer has a prediction."""
        counts = self._counts()
        if len(self._choices) > 1:
            return {"predicted": None, **counts, "choices": [choice.timings() for choice in self._choices]}
        (choice,) = self._choices
        predicted = self._site.placement.predict(counts["prompt_tokens"], counts["completion_tokens"])
        return {**choice.timings(), "predicted": asdict(predicted) if predicted is not None else None, **counts}


async def _gone(receive: Receive) -> None:
    """Wait until the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _error_of(end: AnswerEnd | None) -> ApiError | None:
    if end is None or end.reason in ("stop", "length"):
        return None
    return ApiError(
        503, "the answer was cancelled" if end.reason == "cancelled" else end.message or "the engine failed"
    )


async def _send_error(send: Send, error: ApiError) -> None:
    await send_json(send, error.status, error.to_json())
