"""The page's application for tests: without a socket, and served at a free port."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from simcluster_backends.sockets.coordinator.service import AppServer

from simcluster.lab.ui.app import make_app
from simcluster.lab.ui.run_children import Children
from simcluster.lab.ui.shelf import RunShelf
from simcluster.runs.write import write_run
from simcluster.topology import load
from simcluster.web.login import Login
from tests.support.asgi import answer_of
from tests.support.made_up_runs import made_up_config, made_up_run, topology_document

URL = "http://127.0.0.1:52480"
HOSTS = ("127.0.0.1", "localhost", "[::1]")


def write_made_up(folder: Path, *, fail_at_step: int | None = None, **config: Any) -> Path:
    """A run that no backend has made, without a report."""
    record = made_up_run(fail_at_step=fail_at_step)
    return write_run(folder, made_up_config(**config), load(topology_document()), record, "0.1.0")


class Asked:
    """The application of *root*, asked as a browser on its own page would."""

    def __init__(self, root: Path, login: Login | None = None) -> None:
        self.children = Children(root)
        self.app = make_app(RunShelf(root), self.children, HOSTS, login, is_tls=False)

    def __call__(self, method: str, path: str, content: Any = None, **headers: str | None) -> httpx.Response:
        given = {"Origin": URL, "Sec_Fetch_Site": "same-origin", **headers}
        return answer_of(self.app, URL, method, path, content, given)


@contextmanager
def served(root: Path, login: Login | None = None) -> Iterator[str]:
    """The address of the page of *root*."""
    children = Children(root)
    server = AppServer(
        "127.0.0.1:0", lambda hosts: make_app(RunShelf(root), children, hosts, login, is_tls=False), key="ui"
    )
    server.start()
    try:
        yield server.url
    finally:
        server.close()
        children.close()
