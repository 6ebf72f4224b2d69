"""The calls as HTTP, each a line: what they mean is the desk's affair, and who may make them the guard's.

This file knows paths and FastAPI. Nothing changes by a GET.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any

from fastapi import FastAPI, HTTPException, Query, Response
from fastapi.responses import HTMLResponse, JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import Field

from backends.sockets.coordinator import dashboard
from backends.sockets.coordinator.desk import Desk, Full
from backends.sockets.coordinator.guard import App, Guard
from simcluster import __version__
from simcluster.watching.board import RunInfo, Telemetry, Words

NAME = r"^[A-Za-z0-9_][A-Za-z0-9_-]{0,63}$"
Name = Annotated[str, Field(pattern=NAME)]


class Arrival(Words):
    """A worker, and where others reach it."""

    name: Name
    address: Annotated[str, Field(max_length=300)] = ""


class Outcome(Words):
    """How a run ended; *error* is empty if well."""

    error: Annotated[str, Field(max_length=20_000)] = ""


def make_api(desk: Desk, token: str, hosts: Collection[str]) -> App:
    """The service as an ASGI application that answers only to the names *hosts* and to who has *token*."""
    api = FastAPI(title="simcluster coordinator", version=__version__, docs_url=None, redoc_url=None)
    _add_calls_of_workers(api, desk)
    _add_calls_of_launchers(api, desk)
    _add_questions(api, desk)
    return Guard(api, token, hosts, open_=(dashboard.PATH,))


def _add_calls_of_workers(api: FastAPI, desk: Desk) -> None:
    @api.post("/workers")
    def register(arrival: Arrival) -> dict[str, Any]:
        try:
            return desk.register(arrival.name, arrival.address)
        except Full:
            raise HTTPException(409, "there are as many workers as there may be") from None

    @api.post("/workers/{name}/heartbeat")
    def heartbeat(name: Name) -> dict[str, Any]:
        return desk.heartbeat(name)

    @api.post("/workers/{name}/leave")
    def leave(name: Name) -> dict[str, Any]:
        return desk.leave(name)


def _add_calls_of_launchers(api: FastAPI, desk: Desk) -> None:
    @api.post("/runs")
    def begin(run: RunInfo) -> dict[str, Any]:
        return desk.begin(run)

    @api.post("/runs/end")
    def end(outcome: Outcome) -> dict[str, Any]:
        return desk.end(outcome.error)

    @api.post("/telemetry")
    def telemetry(telemetry: Telemetry) -> dict[str, Any]:
        return desk.telemetry(telemetry)


def _add_questions(api: FastAPI, desk: Desk) -> None:
    @api.api_route(dashboard.PATH, methods=["GET", "HEAD"], include_in_schema=False)
    def page() -> HTMLResponse:
        return HTMLResponse(dashboard.page(), headers=dashboard.headers())

    @api.get("/training/ready")
    def ready(min_workers: Annotated[int, Query(ge=1, le=1_000_000)] = 1) -> dict[str, Any]:
        return desk.ready(min_workers)

    @api.get("/status")
    def status() -> JSONResponse:
        return JSONResponse(desk.status())

    @api.get("/history")
    def history(after_s: float = -1.0) -> JSONResponse:
        return JSONResponse(desk.history(after_s))

    @api.get("/metrics")
    def metrics() -> Response:
        return Response(desk.prometheus(), media_type=CONTENT_TYPE_LATEST)
