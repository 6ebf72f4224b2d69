"""The command `simcluster ui`: serve a page that shows the runs of a folder."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
from collections.abc import Collection
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from simcluster.backend import real_nodes
from simcluster.cli.terminal.options import AllowHost, ServeTls
from simcluster.errors import UsageError
from simcluster.paths.given_path import given_path
from simcluster.process.installed import OF_PAGES, install_extra
from simcluster.process.platforms import need_unix
from simcluster.web.requests import App, is_loopback


def ui(
    folder: Annotated[Path, Argument(metavar="FOLDER", help="The folder with runs and sweeps.")] = Path("runs"),
    host: Annotated[str, Option(metavar="HOST", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Option(metavar="N", min=0, max=65535, help="The port; 0 takes any free one.")] = 52480,
    login: Annotated[
        bool, Option("--login", help="Ask for the printed link on loopback, too: others may use this machine.")
    ] = False,
    allow_host: AllowHost = None,
    tls: ServeTls = None,
    plain_http: Annotated[
        bool, Option("--plain-http", help="Let the page cross a network unencrypted, where a session can be stolen.")
    ] = False,
) -> None:
    """Show runs and sweeps in a browser: list, compare, watch, start."""
    need_unix("the page")
    root = given_path(folder, "folder")
    if absent := [name for name in OF_PAGES if importlib.util.find_spec(name) is None]:
        raise UsageError("ui", f"no {', '.join(absent)}", f"it to be installed: {install_extra('api')}")
    if not root.is_dir():
        from simcluster.runs.destination import check_writable

        check_writable(root, "folder")
        print(f"note: no folder {root}; an empty one is made", file=sys.stderr)
    from simcluster.lab.ui.app import make_app
    from simcluster.lab.ui.run_children import Children
    from simcluster.lab.ui.shelf import RunShelf
    from simcluster.web.login import Login, invitation

    names = allow_host or []

    def said(code: str) -> None:
        print(invitation(server.page_url, code), flush=True)

    children = Children(root)
    # Require a login unless every name is loopback: under another name, a proxy may forward
    # requests from other machines to this one.
    entrance = Login(said) if login or not all(map(is_loopback, [host, *names])) else None

    def app_for(hosts: Collection[str]) -> App:
        return make_app(RunShelf(root), children, hosts, entrance, is_tls=tls is not None)

    endpoint = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    server = real_nodes().serve_pages(endpoint, app_for, names, str(tls) if tls is not None else None, plain_http, "ui")
    root.mkdir(parents=True, exist_ok=True)
    print(f"{root} at {server.page_url}/", flush=True)
    if entrance is not None:
        entrance.renew()
    threading.Thread(target=_warm_up, daemon=True).start()
    try:
        server.run()
    finally:
        server.close()
        children.close()


def _warm_up() -> None:
    """Import the plotting modules, so that the first figure does not wait for the import."""
    importlib.import_module("simcluster.lab.reports.plots")
