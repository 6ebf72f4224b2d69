"""A program that prepares for a time which the test decides, without letting its event loop turn."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from tests.support.node_programs import ring

__all__ = ["prepare", "ring"]


def prepare(config: str) -> None:
    """Write that this process is at work, and wait for the file `go`."""
    folder = Path(json.loads(config)["folder"])
    (folder / f"{os.getpid()}.at-work").touch()
    while not (folder / "go").exists():
        time.sleep(0.02)
