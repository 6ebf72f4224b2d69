"""The HTTP routes of a served model. No GET changes anything."""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections.abc import Collection
from dataclasses import asdict
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException

from simcluster.errors import UsageError
from simcluster.lm.request import Request as ModelRequest
from simcluster.lm.request import Sampling
from simcluster.lm.serving.desk.front import Unavailable
from simcluster.lm.serving.web.asks import (
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    GenerationRequest,
    TokenizeRequest,
    most_tokens,
    parsed,
)
from simcluster.lm.serving.web.chat import page
from simcluster.lm.serving.web.chunks import ReplyShape
from simcluster.lm.serving.web.errors import ApiError, not_supported
from simcluster.lm.serving.web.guard import COOKIE, ServingGuard
from simcluster.lm.serving.web.live import LoadStream, state
from simcluster.lm.serving.web.metrics import Metrics
from simcluster.lm.serving.web.reply import Reply
from simcluster.lm.serving.web.served import ServedModel, Site
from simcluster.lm.serving.web.words import AnswerText
from simcluster.version import __version__
from simcluster.web.login import Login, add_login
from simcluster.web.requests import App

COMPLETION_TOKENS: Final = 16
"""The answer's limit in /v1/completions if none is given, as OpenAI has it."""

RETRY_S: Final = "1"

TOKEN_BYTES: Final = 16
"""The most bytes of a prompt for each token of the context; a token of text has about four."""


def make_app(
    site: Site, hosts: Collection[str], token: str | None = None, login: Login | None = None, *, is_tls: bool = False
) -> App:
    """Return the application, which answers only to the names *hosts* and, with a *token*, to its holders."""
    api = FastAPI(title="simcluster serve", version=__version__, docs_url=None, redoc_url=None, openapi_url=None)
    for kind, handler in ((ApiError, _refuse), (HTTPException, _refuse_path), (RequestValidationError, _refuse_form)):
        api.add_exception_handler(kind, handler)
    api.add_exception_handler(Exception, _fail)
    _add_page(api, site)
    _add_questions(api, site)
    _add_texts(api, site)
    _Answers(site).add(api)
    add_login(api, login, COOKIE, same_site="strict", is_tls=is_tls)
    return ServingGuard(api, hosts, token, login)


async def _refuse(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ApiError)
    more = {"retry-after": RETRY_S} if error.status == 503 else None
    return JSONResponse(error.to_dict(), error.status, more)


async def _refuse_path(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    words = f"no {request.method} {request.url.path[:200]}" if error.status_code in (404, 405) else str(error.detail)
    return JSONResponse(ApiError(error.status_code, words).to_dict(), error.status_code)


async def _refuse_form(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse(ApiError(400, "expected the code of a login link").to_dict(), 400)


async def _fail(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse(ApiError(500, "the server failed; its log says why").to_dict(), 500)


def _add_page(api: FastAPI, site: Site) -> None:
    @api.api_route("/", methods=["GET", "HEAD"])
    def chat() -> Response:
        return Response(page().content, media_type="text/html", headers=page().headers)

    @api.get("/shelf")
    def shelf() -> dict[str, Any]:
        served, load, now = site.served, state(site.front), site.placement
        found = {"name": served.name, "backend": served.backend, "chat": served.language.has_chat}
        found |= {"placement": now.kind, "context": now.context, "parts": [asdict(part) for part in now.parts]}
        found |= {"lost": [asdict(one) for one in now.lost], "unused": list(now.unused)}
        return found | {"load": load, "why_not": site.front.why_not}

    @api.get("/live")
    def live() -> Response:
        return LoadStream(site)


def _add_questions(api: FastAPI, site: Site) -> None:
    metrics = site.front.observer = Metrics(site.front, site.served.name)

    @api.get("/health")
    def health() -> JSONResponse:
        front = site.front
        if front.why_not:
            raise ApiError(503, front.why_not)
        return JSONResponse({"status": "ok", "model": site.served.name, "open_requests": front.open_requests,
                             "lag_s": front.lag_s})  # fmt: skip

    @api.get("/metrics")
    async def numbers() -> Response:
        return Response(metrics.text(), media_type=CONTENT_TYPE_LATEST)

    @api.get("/v1/models")
    def models() -> dict[str, Any]:
        return {"object": "list", "data": [_model(site)]}

    @api.get("/v1/models/{name:path}")
    def model(name: str) -> dict[str, Any]:
        _check_name(site.served, name)
        return _model(site)


def _model(site: Site) -> dict[str, Any]:
    return {"id": site.served.name, "object": "model", "created": site.served.created, "owned_by": "simcluster",
            "max_model_len": site.placement.context}  # fmt: skip


def _check_name(served: ServedModel, name: str | None) -> None:
    if name is not None and name != served.name:
        raise ApiError(404, f"no model {name[:200]!r}; this server has {served.name!r}", "model_not_found")


def _add_texts(api: FastAPI, site: Site) -> None:
    @api.post("/tokenize")
    async def tokenize(request: Request) -> dict[str, Any]:
        served, ask = site.served, parsed(TokenizeRequest, await request.body())
        _check_name(served, ask.model)
        if (ask.prompt is None) == (ask.messages is None):
            raise ApiError(400, "expected either a prompt or messages")
        if ask.messages is not None:
            tokens = await asyncio.to_thread(_rendered, site, [message.to_dict() for message in ask.messages])
        else:
            tokens = await asyncio.to_thread(_encoded, site, ask.prompt or "")
        return {"tokens": tokens, "count": len(tokens), "max_model_len": site.placement.context}

    @api.post("/detokenize")
    async def detokenize(request: Request) -> dict[str, Any]:
        served, ask = site.served, parsed(DetokenizeRequest, await request.body())
        _check_name(served, ask.model)
        _check_ids(served, ask.tokens)
        return {"prompt": await asyncio.to_thread(served.language.decode, ask.tokens)}


def _check_ids(served: ServedModel, tokens: list[int]) -> None:
    if wrong := next((token for token in tokens if not 0 <= token < served.vocabulary), None):
        raise ApiError(400, f"no token {wrong}; expected ids from 0 to {served.vocabulary - 1}")


def _check_size(site: Site, *texts: str) -> None:
    """Raise ApiError for texts that are far too long for the context: to cut up a MB takes many seconds."""
    size, most = sum(len(text.encode("utf-8", "replace")) for text in texts), TOKEN_BYTES * site.placement.context
    if size > most:
        why = f"a prompt of {size} bytes; expected at most {most}, {TOKEN_BYTES} for each token of the context"
        raise ApiError(400, why, "context_length_exceeded")


def _encoded(site: Site, text: str) -> list[int]:
    """Return the tokens of a prompt. Raise ApiError."""
    _check_size(site, text)
    return site.served.language.encode(text)


def _rendered(site: Site, messages: list[dict[str, str]]) -> list[int]:
    """Return the tokens of a conversation. Raise ApiError."""
    served = site.served
    _check_size(site, *(message["content"] for message in messages))
    if not served.language.has_chat:
        raise not_supported(f"chat with {served.name}, which has no chat template,")
    try:
        return served.language.render(messages)
    except UsageError as error:
        raise ApiError(400, f"messages: {error}") from None


class _Answers:
    """The routes that answer prompts. A request without a seed gets its number."""

    def __init__(self, site: Site) -> None:
        self._site, self._numbers = site, itertools.count(1)

    def add(self, api: FastAPI) -> None:
        api.post("/v1/chat/completions")(self.chat)
        api.post("/v1/completions")(self.complete)

    async def chat(self, request: Request) -> Response:
        served, ask = self._site.served, parsed(ChatRequest, await request.body())
        _check_name(served, ask.model)
        messages = [message.to_dict() for message in ask.messages]
        prompt = await asyncio.to_thread(_rendered, self._site, messages)
        asked = ask.max_completion_tokens if ask.max_completion_tokens is not None else ask.max_tokens
        most = most_tokens(asked, len(prompt), self._site.placement.context, None)
        return self._reply(ask, prompt, most, ReplyShape("chat", _id("chatcmpl-"), int(time.time()), served.name))

    async def complete(self, request: Request) -> Response:
        served, ask = self._site.served, parsed(CompletionRequest, await request.body())
        _check_name(served, ask.model)
        prompt = ask.only_prompt()
        if isinstance(prompt, str):
            prompt = await asyncio.to_thread(_encoded, self._site, prompt)
        else:
            _check_ids(served, prompt)
        most = most_tokens(ask.max_tokens, len(prompt), self._site.placement.context, COMPLETION_TOKENS)
        return self._reply(ask, prompt, most, ReplyShape("text", _id("cmpl-"), int(time.time()), served.name))

    def _reply(self, ask: GenerationRequest, prompt: list[int], most: int, shape: ReplyShape) -> Response:
        seed = ask.seed if ask.seed is not None else next(self._numbers)
        sampling = Sampling(
            temperature=1.0 if ask.temperature is None else ask.temperature,
            top_k=max(0, ask.top_k or 0),
            top_p=1.0 if ask.top_p is None else ask.top_p,
            seed=seed,
        )
        language = self._site.served.language
        ends = frozenset[int]() if ask.ignore_eos else language.ends
        try:
            asked = ModelRequest(shape.id, tuple(prompt), most, sampling, ends, logprobs=ask.likeliest)
            answer = self._site.front.ask(asked)
        except Unavailable as error:
            raise ApiError(503, str(error), "unavailable") from None
        words = AnswerText(language.decoder(), language.ends, ask.stops)
        usage = ask.stream_options is not None and bool(ask.stream_options.include_usage)
        return Reply(self._site, answer, shape, words, streams=bool(ask.stream), usage=usage)


def _id(prefix: str) -> str:
    return prefix + secrets.token_hex(12)
