"""Help in groups by purpose, as plain text as wide as the terminal: it fits pipes, and no library draws boxes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from typer.core import TyperCommand, TyperGroup

WIDEST: Final = 120
"""Longer lines are hard to read."""
WIDTH: Final = {"max_content_width": WIDEST}

RUNS, START, RESULTS, CLUSTERS, NODES = "Run", "Start", "Look at results", "Describe clusters", "Real nodes"
OUTPUT = "Output"


class HelpCommand(TyperCommand):
    """A command with its options in groups."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        _sections(formatter, _options(self, ctx))


class HelpGroup(TyperGroup):
    """A group of commands, themselves in groups by purpose."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        _sections(formatter, _options(self, ctx))
        found = []
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                title = getattr(command, "rich_help_panel", None)
                found.append((title if isinstance(title, str) else "Commands", name, command))
        order = {title: place for place, title in enumerate((RUNS, START, RESULTS, CLUSTERS, NODES))}
        found.sort(key=lambda row: order.get(row[0], len(order)))
        _sections(formatter, ((title, (name, command.get_short_help_str(WIDEST))) for title, name, command in found))


def _options(command: Any, ctx: Any) -> Iterable[tuple[str, tuple[str, str]]]:
    """Yield (group, (option, help)) of each option, those without a group first."""
    found = []
    for param in command.get_params(ctx):
        record = param.get_help_record(ctx)
        if record is not None:
            title = getattr(param, "rich_help_panel", None)
            default = "Options" if param.opts[0].startswith("-") else "Arguments"
            found.append((title if isinstance(title, str) else default, record))
    order = {"Arguments": 0, "Options": 1}
    return sorted(found, key=lambda row: order.get(row[0], 2))


def _sections(formatter: Any, rows: Iterable[tuple[str, tuple[str, str]]]) -> None:
    sections: dict[str, list[tuple[str, str]]] = {}
    for title, row in rows:
        sections.setdefault(title, []).append(row)
    for title, those in sections.items():
        with formatter.section(title):
            formatter.write_dl(those)
