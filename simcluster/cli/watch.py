"""`--watch`: a live view of a run on standard error instead of the bar, if that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simcluster.process import terminal

if TYPE_CHECKING:
    from simcluster.watching.telling import Watcher

Watch = Annotated[
    bool,
    typer.Option("--watch", help="Show nodes, rates, links and stragglers live; only in a terminal."),
]


@contextmanager
def watching(*, silent: bool) -> Iterator[Watcher | None]:
    """Yield a watcher that draws on standard error, or None unless that is a terminal. Its last view stays."""
    if silent or not sys.stderr.isatty():
        yield None
        return
    from rich.live import Live

    from simcluster.watching.screen import draw
    from simcluster.watching.watcher import Watching

    console = terminal.console()
    # Drawn by the caller when there is news: a separate thread would slow the simulation down.
    with terminal.drawn(Live(console=console, auto_refresh=False, redirect_stdout=True, redirect_stderr=True)) as live:

        def show(run: dict[str, Any], history: list[dict[str, Any]]) -> None:
            width, height = console.size
            live.update(draw(run, history, width=width, height=height), refresh=True)

        yield Watching(show)
