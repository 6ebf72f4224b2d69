"""The commands of `simcluster`: where the core and its wings add theirs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer

from simcluster.cli.terminal.help import WIDTH, HelpCommand, HelpGroup


class CommandLine:
    """Adds commands to *app*, each to a group of its help."""

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
        """Add *function* to the group *panel*, by default under its own name; *settings* are of its context."""
        how = self.app.command(
            name, cls=HelpCommand, rich_help_panel=panel, context_settings={**WIDTH, **(settings or {})}, epilog=epilog
        )
        how(function)

    def family(self, name: str, panel: str, summary: str) -> typer.Typer:
        """Return the commands after *name*, as in `simcluster bench collective`; the first call says *summary*."""
        if name not in self._families:
            found = self._families[name] = typer.Typer(
                help=summary, no_args_is_help=True, rich_markup_mode=None, cls=HelpGroup, context_settings=WIDTH
            )
            self.app.add_typer(found, name=name, rich_help_panel=panel)
        return self._families[name]
