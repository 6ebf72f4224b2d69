"""The command that ssh starts on a real node, apart, so that it runs before anything large has been imported."""

from __future__ import annotations

import importlib
from typing import Any


def serve_launcher() -> int:
    """Does what a launcher that has reached this machine by ssh says on standard input; returns the exit code."""
    launched: Any = importlib.import_module("simcluster_backends.sockets.launcher.remote_agent")
    code: int = launched.serve_launcher()
    return code
