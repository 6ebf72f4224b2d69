"""The reply to a request: whole, or as a stream. A client that leaves ends its answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Any, Final

from starlette.responses import Response

from simcluster.lm.digest import ids_sha256
from simcluster.lm.request import NO_LOGPROBS
from simcluster.lm.serving.desk.front import AnswerEnd, PendingAnswer
from simcluster.lm.serving.web import chunks
from simcluster.lm.serving.web.chunks import ReplyShape
from simcluster.lm.serving.web.errors import ApiError, send_json
from simcluster.lm.serving.web.likely import TokenRow, TokenRows, shaped
from simcluster.lm.serving.web.served import Site
from simcluster.lm.serving.web.words import AnswerText
from simcluster.web.requests import Receive, Scope, Send

KEEP_ALIVE_S: Final = 10.0
TIMINGS: Final = "x-simcluster-timings"
STREAM: Final = ((b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-store"))


class Reply(Response):
    """Sends *answer*, which *words* spell, in *shape*. A client's *stream* begins with the first token.

    Before that, an error still has a status; a stream that waits for longer begins with a keep-alive. The predicted
    times are those of the placement at its end.
    """

    def __init__(
        self, site: Site, answer: PendingAnswer, shape: ReplyShape, words: AnswerText, *, streams: bool, usage: bool
    ) -> None:
        super().__init__(None)
        self._site, self._front, self._answer = site, site.front, answer
        self._shape, self._words, self._streams, self._usage = shape, words, streams, usage
        self._tokens: list[int] = []
        self._rows = TokenRows()
        self._has_begun = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        leaving = asyncio.create_task(_gone(receive))
        sending = asyncio.create_task(self._stream(send) if self._streams else self._whole(send))
        try:
            await asyncio.wait({leaving, sending}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._front.cancel(self._answer)
            leaving.cancel()
            sending.cancel()
            await asyncio.gather(leaving, sending, return_exceptions=True)
        if not sending.cancelled():
            sending.result()

    async def _pieces(self) -> AsyncIterator[tuple[str, list[TokenRow], AnswerEnd | None]]:
        """Yield text with its rows of log-probabilities and, with the last, the end; nothing new, from time to time,
        while there is none.
        """
        while True:
            try:
                tokens, end = await asyncio.wait_for(self._answer.more(), KEEP_ALIVE_S)
            except TimeoutError:
                yield "", [], None
                continue
            text = ""
            for token in tokens:
                text += self._text_of(token)
                if self._words.is_stopped:
                    self._front.cancel(self._answer)
                    end = AnswerEnd("stop")
                    break
            if end is not None:
                text += self._words.end()
            all_shown = end is not None and not self._words.is_stopped
            rows = self._rows.rest() if all_shown else self._rows.until(self._words.shown)
            if end is not None or tokens:
                yield text, rows, end
            if end is not None:
                return

    def _text_of(self, token: int) -> str:
        """Return the text that the next *token* adds; keep its log-probabilities if they are asked for."""
        self._tokens.append(token)
        answer, start = self._answer, self._words.decoded
        found = answer.logprobs.popleft() if answer.request.logprobs != NO_LOGPROBS else None
        if found is not None and token not in self._site.served.language.ends:
            self._rows.add(TokenRow(token, start, found))
        return self._words.push([token])

    def _chunk(self, text: str, rows: list[TokenRow]) -> bytes:
        return self._shape.chunk(text, logprobs=shaped(self._shape.kind, rows, self._site.served.language))

    async def _stream(self, send: Send) -> None:
        async def out(*events: bytes) -> None:
            if not self._has_begun:
                self._has_begun = True
                await send({"type": "http.response.start", "status": 200, "headers": list(STREAM)})
                if self._shape.kind == "chat":
                    events = (self._shape.chunk("", role="assistant"), *events)
            await send({"type": "http.response.body", "body": b"".join(events), "more_body": True})

        async for text, rows, end in self._pieces():
            if end is None:
                await out(self._chunk(text, rows) if text else chunks.KEEP_ALIVE)
                continue
            error = _error_of(end)
            if error is not None and not self._has_begun:
                await _send_error(send, error)
                return
            if text or rows:
                await out(self._chunk(text, rows))
            if error is not None:
                await out(chunks.event(error.to_dict()))
            else:
                await out(self._shape.chunk(None, finish=end.reason), *self._last_events())
            await send({"type": "http.response.body", "body": chunks.DONE, "more_body": False})

    def _last_events(self) -> list[bytes]:
        usage = [self._shape.usage(self._counts())] if self._usage else []
        return [*usage, chunks.comment("timings", self._timings())]

    async def _whole(self, send: Send) -> None:
        said, told = "", list[TokenRow]()
        async for text, rows, end in self._pieces():
            said += text
            told += rows
            if end is None:
                continue
            error = _error_of(end)
            if error is not None:
                await _send_error(send, error)
                return
            logprobs = shaped(self._shape.kind, told, self._site.served.language)
            found = self._shape.whole(said, end.reason, self._counts(), logprobs)
            timings = (TIMINGS.encode(), json.dumps(self._timings()).encode())
            await send_json(send, 200, json.dumps(found).encode(), timings)

    def _counts(self) -> dict[str, int]:
        return chunks.usage_of(len(self._answer.request.prompt), len(self._tokens))

    def _timings(self) -> dict[str, Any]:
        answer = self._answer
        predicted = self._site.placement.predict(len(answer.request.prompt), len(self._tokens))
        return {
            "ttft_s": answer.ttft_s,
            "tokens_per_s": answer.tokens_per_s,
            "predicted": asdict(predicted) if predicted is not None else None,
            **self._counts(),
            "seed": answer.request.sampling.seed,
            "token_ids_sha256": ids_sha256(self._tokens),
        }


async def _gone(receive: Receive) -> None:
    """Return when the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _error_of(end: AnswerEnd) -> ApiError | None:
    if end.reason == "error":
        return ApiError(503, end.message or "the engine failed")
    return ApiError(503, "the answer was cancelled") if end.reason == "cancelled" else None


async def _send_error(send: Send, error: ApiError) -> None:
    await send_json(send, error.status, error.to_json())
