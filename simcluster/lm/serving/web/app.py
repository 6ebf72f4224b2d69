"""The HTTP routes of a served model. No GET request changes anything."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection
from dataclasses import asdict
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException

from simcluster.lm.serving.web.answer_limits import check_ids
from simcluster.lm.serving.web.answer_routes import AnswerRoutes, check_name, encoded, rendered
from simcluster.lm.serving.web.api_schema import (
    DetokenizeRequest,
    TokenizeRequest,
    parsed,
)
from simcluster.lm.serving.web.chat import page
from simcluster.lm.serving.web.errors import ApiError
from simcluster.lm.serving.web.guard import COOKIE, ServingGuard
from simcluster.lm.serving.web.load_stream import LoadStream, state
from simcluster.lm.serving.web.metrics import Metrics
from simcluster.lm.serving.web.served_model import Site
from simcluster.version import __version__
from simcluster.web.login import Login, add_login
from simcluster.web.requests import App

RETRY_S: Final = "1"  # in seconds, as the value of a header


def make_app(
    site: Site, hosts: Collection[str], token: str | None = None, login: Login | None = None, *, is_tls: bool = False
) -> App:
    """Return the application, which only answers requests to one of *hosts*.

    With a *token*, a request must carry the token or come from a page with a session of *login*.
    """
    # FastAPI's documentation pages would load scripts from another server.
    api = FastAPI(title="simcluster serve", version=__version__, docs_url=None, redoc_url=None, openapi_url=None)
    for kind, handler in ((ApiError, _refuse), (HTTPException, _refuse_path), (RequestValidationError, _refuse_form)):
        api.add_exception_handler(kind, handler)
    api.add_exception_handler(Exception, _fail)
    _add_page(api, site)
    _add_questions(api, site)
    _add_texts(api, site)
    AnswerRoutes(site).add(api)
    add_login(api, login, COOKIE, same_site="strict", is_tls=is_tls)
    return ServingGuard(api, hosts, token, login)


async def _refuse(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ApiError)
    more = {"retry-after": RETRY_S} if error.status == 503 else None
    return JSONResponse(error.to_dict(), error.status, more)


async def _refuse_path(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    words, code = str(error.detail), None
    if error.status_code in (404, 405):
        words = f"no {request.method} {request.url.path[:200]}"
    if error.status_code == 404 and request.url.path.startswith("/v1/"):
        words, code = f"{words}; this server has {', '.join(sorted(_paths(request.app)))}", "unknown_url"
    return JSONResponse(ApiError(error.status_code, words, code).to_dict(), error.status_code)


def _paths(api: FastAPI) -> set[str]:
    """Return the paths of OpenAI's API that *api* has."""
    return {route.path for route in api.routes if isinstance(route, APIRoute) and re.match(r"/v1/[^{]+$", route.path)}


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
        served = site.served
        load = state(site.front)
        now = site.placement
        found = {"name": served.name, "backend": served.backend, "chat": served.language.has_chat}
        found |= {"placement": now.kind, "context": now.context, "parts": [asdict(part) for part in now.parts]}
        found |= {"lost": [asdict(one) for one in now.lost], "unused": now.unused, "predicted_for": now.predicted_for}
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
        check_name(site.served, name)
        return _model(site)


def _model(site: Site) -> dict[str, Any]:
    return {"id": site.served.name, "object": "model", "created": site.served.created, "owned_by": "simcluster",
            "max_model_len": site.placement.context}  # fmt: skip


def _add_texts(api: FastAPI, site: Site) -> None:
    @api.post("/tokenize")
    async def tokenize(request: Request) -> dict[str, Any]:
        served = site.served
        ask = parsed(TokenizeRequest, await request.body())
        check_name(served, ask.model)
        if (ask.prompt is None) == (ask.messages is None):
            raise ApiError(400, "expected either a prompt or messages", param="prompt")
        if ask.messages is not None:
            tokens = await asyncio.to_thread(rendered, site, [message.to_dict() for message in ask.messages])
        else:
            tokens = await asyncio.to_thread(encoded, site, ask.prompt or "")
        return {"tokens": tokens, "count": len(tokens), "max_model_len": site.placement.context}

    @api.post("/detokenize")
    async def detokenize(request: Request) -> dict[str, Any]:
        served = site.served
        ask = parsed(DetokenizeRequest, await request.body())
        check_name(served, ask.model)
        check_ids(ask.tokens, served.vocabulary, "tokens")
        return {"prompt": await asyncio.to_thread(served.language.decode, ask.tokens)}
