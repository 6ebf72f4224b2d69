"""The HTTP routes. The desk implements the calls, and the guard authorises them.

No GET changes anything. The dashboard is a page that shows a run in a browser. The page itself
holds no secret, and fetches only from this service, so it needs no authorisation. Off loopback, the
data that it fetches need a session, which begins with a login link.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import cache
from typing import Annotated, Any

from fastapi import FastAPI, HTTPException, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import Field

from simcluster import __version__
from simcluster.watching.board import PlainModel, RunInfo, Telemetry
from simcluster.web.assets import asset, joined
from simcluster.web.login import Login, add_login
from simcluster.web.one_page import OnePage
from simcluster.web.requests import SANDBOX, App
from simcluster_backends.sockets.coordinator.desk import MOST_WORKERS, CoordinatorDesk
from simcluster_backends.sockets.coordinator.guard import BODY_LIMIT_BYTES, COOKIE, DASHBOARD, CoordinatorGuard

HERE = "simcluster_backends.sockets.coordinator"

SAID, SAID_CHARACTERS = 5, 200
"""The maximum numbers of problems in the answer to an invalid request, and of characters per
problem.
"""

NAME = r"^[A-Za-z0-9_][A-Za-z0-9_-]{0,63}$"
Name = Annotated[str, Field(pattern=NAME)]


class Arrival(PlainModel):
    """The body of a registration: a worker's name, and the address at which peers reach it."""

    name: Name
    address: Annotated[str, Field(max_length=300)] = ""


class Goodbye(PlainModel):
    """The body of a leave call.

    With *gone*, the worker itself reports that it has left. Otherwise the caller asks the worker to
    leave.
    """

    gone: bool = False


class RunOutcome(PlainModel):
    """The outcome of a run; *error* is empty if the run ended well."""

    error: Annotated[str, Field(max_length=20_000)] = ""


class RunPage(PlainModel):
    """The report of a run that has ended, as one HTML *page*."""

    page: Annotated[str, Field(max_length=BODY_LIMIT_BYTES)]


def make_api(
    desk: CoordinatorDesk, token: str, hosts: Collection[str], login: Login | None = None, is_tls: bool = False
) -> App:
    """Return the ASGI application of *desk*, which serves only requests to one of *hosts*.

    A call needs *token*. The dashboard reads its data without the token; with a *login*, it needs a
    session instead.
    """
    api = FastAPI(title="simcluster coordinator", version=__version__, docs_url=None, redoc_url=None)
    api.add_exception_handler(RequestValidationError, _refuse_form)
    _add_calls_of_workers(api, desk)
    _add_calls_of_launchers(api, desk)
    _add_questions(api, desk)
    add_login(api, login, COOKIE, same_site="strict", is_tls=is_tls)
    return CoordinatorGuard(api, token, hosts, login)


async def _refuse_form(request: Request, error: Exception) -> JSONResponse:
    """Answer with the problems of an invalid request, without the rejected values.

    A rejected value may be large, or have no representation in JSON.
    """
    assert isinstance(error, RequestValidationError)
    first = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}"[:SAID_CHARACTERS] for one in error.errors()[:SAID]]
    return JSONResponse({"detail": "; ".join(first)}, 422)


def _add_calls_of_workers(api: FastAPI, desk: CoordinatorDesk) -> None:
    @api.post("/workers")
    def register(arrival: Arrival) -> dict[str, Any]:
        return desk.register(arrival.name, arrival.address)

    @api.post("/workers/{name}/heartbeat")
    def heartbeat(name: Name) -> dict[str, Any]:
        return desk.heartbeat(name)

    @api.post("/workers/{name}/leave")
    def leave(name: Name, goodbye: Goodbye | None = None) -> dict[str, Any]:
        if goodbye is not None and goodbye.gone:
            return desk.leave(name)
        return desk.ask_to_leave(name)


def _add_calls_of_launchers(api: FastAPI, desk: CoordinatorDesk) -> None:
    @api.post("/runs")
    def begin(run: RunInfo) -> dict[str, Any]:
        if len(run.nodes) > MOST_WORKERS:
            raise HTTPException(400, f"found {len(run.nodes)} nodes, expected at most {MOST_WORKERS}")
        if wrong := [name for name in run.nodes if not re.fullmatch(NAME, name)]:
            raise HTTPException(400, f"found the node {wrong[0][:80]!r}, expected a name as in {NAME}")
        if len(set(run.nodes)) < len(run.nodes):
            raise HTTPException(400, "found a node twice, expected a different name for each")
        return desk.begin(run)

    @api.post("/runs/end")
    def end(outcome: RunOutcome) -> dict[str, Any]:
        return desk.end(outcome.error)

    @api.post("/runs/report")
    def report(report: RunPage) -> dict[str, Any]:
        return desk.take_report(report.page)

    @api.post("/telemetry")
    def telemetry(telemetry: Telemetry) -> dict[str, Any]:
        if len(telemetry.nodes) > MOST_WORKERS:
            raise HTTPException(400, f"found {len(telemetry.nodes)} nodes, expected at most {MOST_WORKERS}")
        return desk.telemetry(telemetry)


def _add_questions(api: FastAPI, desk: CoordinatorDesk) -> None:
    @api.api_route(DASHBOARD, methods=["GET", "HEAD"], include_in_schema=False)
    def page() -> HTMLResponse:
        return HTMLResponse(dashboard().content, headers=dashboard().headers)

    @api.get("/training/ready")
    def ready(min_workers: Annotated[int, Query(ge=1, le=1_000_000)] = 1) -> dict[str, Any]:
        return desk.ready(min_workers)

    @api.get("/status")
    def status() -> JSONResponse:
        return JSONResponse(desk.status())

    @api.get("/history")
    def history(after_s: float = -1.0) -> JSONResponse:
        return JSONResponse(desk.history(after_s))

    @api.get("/config")
    def config() -> JSONResponse:
        return JSONResponse(desk.config())

    @api.get("/report", include_in_schema=False)
    def shown() -> HTMLResponse:
        # A client sent this page, so its scripts run in a sandbox, without this service's origin.
        return HTMLResponse(desk.report(), headers=dashboard().headers | {"Content-Security-Policy": SANDBOX})

    @api.get("/metrics")
    def metrics() -> Response:
        return Response(desk.prometheus(), media_type=CONTENT_TYPE_LATEST)


@cache
def dashboard() -> OnePage:
    """Return the dashboard as one page, with its styles and scripts inlined."""
    style = asset("base.css") + asset("live.css") + asset("dashboard.css", HERE)
    script = joined(asset("dom.js"), asset("live.js"), asset("login.js"), asset("dashboard.js", HERE))
    return OnePage(asset("dashboard.html", HERE), style, script)
