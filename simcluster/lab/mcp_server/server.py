"""A Model Context Protocol server that offers the tools of a `ToolDesk`, with the official SDK."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from simcluster.errors import UsageError
from simcluster.lab.mcp_server.tool_desk import ToolDesk
from simcluster.version import __version__

ABOUT = """\
Predict distributed training on a cluster, and run it in a simulator. Begin with `list`; `check` and `estimate` an
experiment, `submit` it, `wait`, read its `result`, and `explain` where its time went. Files are named relative to the
server's root; answers have `truncated`."""


def make_server(desk: ToolDesk) -> MCPServer:
    """Return a server that offers the tools of *desk*."""
    server = MCPServer("simcluster", instructions=ABOUT, version=__version__)
    for name, tool in desk.tools().items():
        server.add_tool(_told(tool), name=name)
    return server


def _told(tool: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Return *tool* with each UsageError turned into an error of the protocol."""

    @wraps(tool)
    def call(*args: Any, **kwargs: Any) -> dict[str, Any]:
        try:
            return tool(*args, **kwargs)
        except UsageError as error:
            raise ToolError(str(error)[:4000]) from None

    return call
