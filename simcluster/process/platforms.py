"""Parts that need a Unix refuse on Windows, in one sentence and before anything starts."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NoReturn

from simcluster.errors import Problem, UsageError

if TYPE_CHECKING and sys.platform == "win32":

    def need_unix(part: str) -> NoReturn:
        """On Windows a type checker knows that nothing after this call runs."""
else:

    def need_unix(part: str) -> None:
        """Raise UsageError on Windows: *part* uses processes, signals and files as only Linux and macOS have them."""
        if sys.platform == "win32":
            expected = "Linux, macOS or WSL: it needs their signals, process groups and file descriptors"
            raise UsageError(Problem(part, "Windows", expected))
