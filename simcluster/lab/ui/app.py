"""The HTTP routes of the page. GET requests change nothing."""

from __future__ import annotations

import threading
from collections.abc import Collection
from functools import cache
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from simcluster.catalogue import files, names
from simcluster.errors import UsageError, listed
from simcluster.lab.reports.scales import XAxis
from simcluster.lab.ui.compared import MOST_RUNS, compared
from simcluster.lab.ui.guard import COOKIE, UiGuard
from simcluster.lab.ui.run_children import Children, RunForm
from simcluster.lab.ui.shelf import PAGES, RunShelf
from simcluster.paths.inside import read
from simcluster.version import __version__
from simcluster.web.assets import asset
from simcluster.web.login import Login, add_login
from simcluster.web.requests import SANDBOX, App

SHARED, OWN = (
    ("base.css", "live.css", "dom.js", "live.js", "login.js", "figures.js"),
    ("ui.css", "ui.js", "list.js", "run.js", "compare.js", "new.js"),
)
PAGE_BYTES = 512 << 20
"""Limit on the size of a report that the page serves."""

SAID = 20
"""Limit on the problems that one answer lists."""

Id = Annotated[str, Query(max_length=2000)]


class StartedRun(BaseModel):
    """A request that names a run started by the page."""

    model_config = ConfigDict(extra="forbid")
    id: Annotated[str, Field(max_length=200)]


def make_app(shelf: RunShelf, children: Children, hosts: Collection[str], login: Login | None, is_tls: bool) -> App:
    """Return the application.

    It answers only requests to *hosts*; with a *login*, these must belong to one of its sessions.
    """
    api = FastAPI(title="simcluster ui", version=__version__, docs_url=None, redoc_url=None, openapi_url=None)
    api.add_exception_handler(RequestValidationError, _refuse_form)
    api.add_exception_handler(UsageError, _refuse)
    _add_files(api, shelf)
    _add_questions(api, shelf, children)
    _add_changes(api, children)
    # "lax", not "strict": a sandboxed report has no origin, and its links to other reports need the
    # session.
    add_login(api, login, COOKIE, same_site="lax", is_tls=is_tls)
    return UiGuard(api, hosts, login)


async def _refuse(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, UsageError)
    return JSONResponse({"problems": [line[:2000] for line in listed(error.problems)[:SAID]]}, 400)


async def _refuse_form(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    rows = [f"{'.'.join(map(str, one['loc'][1:]))}: {one['msg']}"[:200] for one in error.errors()[:SAID]]
    return JSONResponse({"problems": rows}, 422)


def _add_files(api: FastAPI, shelf: RunShelf) -> None:
    @api.api_route("/", methods=["GET", "HEAD"])
    def page() -> Response:
        return Response(asset("index.html", "simcluster.lab.ui"), media_type="text/html")

    @api.get("/static/{name}")
    def static(name: str) -> Response:
        if name == "plotly.js":
            return Response(_plotly(), media_type="text/javascript", headers={"cache-control": "max-age=86400"})
        if name not in (*SHARED, *OWN):
            return Response(status_code=404)
        text = asset(name) if name in SHARED else asset(name, "simcluster.lab.ui")
        return Response(text, media_type="text/css" if name.endswith(".css") else "text/javascript")

    @api.get("/files/{path:path}")
    def file(path: str) -> Response:
        folder, _, name = path.rpartition("/")
        if name not in PAGES:
            return Response(status_code=404)
        try:
            content = read(shelf.root, *shelf.parts(folder), name, most_bytes=PAGE_BYTES)
        except OSError:
            return Response(status_code=404)
        return Response(content, media_type="text/html", headers={"content-security-policy": SANDBOX})


@cache
def _plotly() -> bytes:
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs()).encode()


def _add_questions(api: FastAPI, shelf: RunShelf, children: Children) -> None:
    drawing = threading.Lock()  # draws one comparison at a time, since each may read large tables

    @api.get("/api/runs")
    def runs(under: Id = "") -> dict[str, Any]:
        return {"rows": shelf.rows(under), "folder": str(shelf.root), "version": __version__}

    @api.get("/api/run")
    def run(id: Id) -> dict[str, Any]:
        mine = next((child for child in children.all() if child["id"] == id), None)
        live = row = None
        try:
            live, row = shelf.live(id), shelf.row(id)
        except UsageError:
            if mine is None:
                raise  # Only a run that this page has just started may have no folder yet.
        return {"row": row, "live": live, "child": mine, "logs": shelf.logs(id) if row is not None else []}

    @api.get("/api/log")
    def log(id: Id, name: Id) -> dict[str, Any]:
        return {"text": shelf.log(id, name)}

    @api.get("/api/compare")
    def compare(id: Annotated[list[Id], Query(max_length=MOST_RUNS)], x: XAxis = "time") -> dict[str, Any]:
        with drawing:
            return compared(id, [shelf.run(name) for name in id], x)

    @api.get("/api/children")
    def all_children() -> list[dict[str, Any]]:
        return children.all()

    @api.get("/api/names")
    def known() -> dict[str, list[str]]:
        found = {kind: names(kind) for kind in ("algorithms", "topologies", "experiments")}
        own = [path for folder in ("", "experiments/") for path in files(folder) if not path.endswith("/")]
        return found | {"files": own, "backends": ["sim", "sockets"]}


def _add_changes(api: FastAPI, children: Children) -> None:
    @api.post("/api/start")
    def start(wanted: RunForm) -> dict[str, Any]:
        return children.start(wanted)

    @api.post("/api/stop")
    def stop(named: StartedRun) -> dict[str, Any]:
        children.stop(named.id)
        return {}
