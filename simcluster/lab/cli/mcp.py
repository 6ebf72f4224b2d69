"""The command `simcluster mcp`: tools of the Model Context Protocol on standard input and output."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from typer import Option

from simcluster.errors import UsageError
from simcluster.process.installed import install_extra


def mcp(
    root: Annotated[
        Path, Option(metavar="DIR", help="The folder of all runs, and of files that may be named.")
    ] = Path(),
    budget: Annotated[float, Option(metavar="SECONDS", help="The longest time of one call.")] = 120.0,
) -> None:
    """Serve tools of the Model Context Protocol on stdin and stdout (extra mcp)."""
    from importlib.util import find_spec

    from simcluster.lab.mcp_server.tool_desk import ToolDesk

    if find_spec("mcp") is None:
        raise UsageError("mcp", "no package mcp", f"it to be installed: {install_extra('mcp')}")
    from simcluster.lab.mcp_server.server import make_server

    desk = ToolDesk(root, budget)
    os.chdir(root)  # Clients name files relative to the root.
    try:
        make_server(desk).run("stdio")
    finally:
        desk.close()
