"""The command line to which the core and its wings add their commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer

from simcluster.cli.terminal.help import WIDTH, HelpCommand, HelpGroup


class CommandLine:
    """The command line *app*, whose help lists each command in one panel."""

    def __init__(self, app: typer.Typer) -> None:
        self.app = app
        self._families: dict[str, typer.Typer] = {}

    def add(
        self,
        panel: str,
        function: Callable[..., Any],
        name: str | None = None,
        *,
        epilog: str | None = None,
        settings: dict[str, Any] | None = None,
    ) -> None:
        """Add *function* as the command *name* to *panel*; by default, *name* is the function's.

        *settings* are additional settings of the command's typer context.
        """
        how = self.app.command(
            name, cls=HelpCommand, rich_help_panel=panel, context_settings={**WIDTH, **(settings or {})}, epilog=epilog
        )
        how(function)

    def family(self, name: str, panel: str, summary: str) -> typer.Typer:
        """Return the command *name* that has subcommands, as in `simcluster bench collective`.

        The first call adds it to *panel* of the help, with *summary*.
        """
        if name not in self._families:
            found = self._families[name] = typer.Typer(
                help=summary, no_args_is_help=True, rich_markup_mode=None, cls=HelpGroup, context_settings=WIDTH
            )
            self.app.add_typer(found, name=name, rich_help_panel=panel)
        return self._families[name]
