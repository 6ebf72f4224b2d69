"""Progress in a notebook, as a line of text below the cell: it needs no widgets."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

EVERY_S = 0.2
WIDTH = 30


def in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None and hasattr(ipython, "get_ipython") else None
    return hasattr(shell, "kernel")


@contextmanager
def notebook_progress(
    title: str, given: Callable[..., None] | None = None, unit: str = "steps"
) -> Iterator[Callable[..., None] | None]:
    """Yield the callback *given*; without one, yield one that shows progress in a notebook.

    The callback takes (done, total, done before). Outside a notebook, None is yielded.
    """
    if given is not None or not in_notebook():
        yield given
        return
    line = _Line(title, unit)
    try:
        yield line
    finally:
        line.end()


class _Line:
    """A displayed line of progress, which is updated in place a few times per second."""

    def __init__(self, title: str, unit: str) -> None:
        self._title, self._unit = title, unit
        self._began_s = time.monotonic()
        self._shown_s = -EVERY_S
        self._handle: Any = None
        self._last = ""
        self._done = self._total = 0

    def __call__(self, done: int, total: int, before: int = 0) -> None:
        self._done, self._total = done, total
        now_s = time.monotonic()
        if now_s - self._shown_s >= EVERY_S:
            self._shown_s = now_s
            self._show()

    def end(self) -> None:
        """Show the last state."""
        if self._total:
            self._show()

    def _show(self) -> None:
        filled = WIDTH * self._done // max(1, self._total)
        bar = "█" * filled + "░" * (WIDTH - filled)
        took_s = time.monotonic() - self._began_s
        text = f"{self._title} {bar} {self._done:,} of {self._total:,} {self._unit}, {took_s:.0f} s"
        if text == self._last:
            return
        self._last = text
        display = sys.modules["IPython"].display
        shown = {"text/plain": text}
        if self._handle is None:
            self._handle = display.display(shown, raw=True, display_id=True)
        else:
            self._handle.update(shown, raw=True)
