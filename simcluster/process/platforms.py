"""Refuse parts that need a Unix on Windows, with a clear error and before anything starts."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NoReturn

from simcluster.errors import UsageError

if TYPE_CHECKING and sys.platform == "win32":

    def need_unix(part: str) -> NoReturn:
        """Never return, so that a type checker for Windows skips the code after a call."""
else:

    def need_unix(part: str) -> None:
        """Raise UsageError on Windows, since *part* needs a Unix.

        It needs signals, process groups and file descriptors.
        """
        if sys.platform == "win32":
            expected = "Linux, macOS or WSL: it needs their signals, process groups and file descriptors"
            raise UsageError(part, "Windows", expected)
