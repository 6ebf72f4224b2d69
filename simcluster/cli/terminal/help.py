"""Show help in groups by purpose, as plain text without boxes, which fits pipes and terminals."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from typer.core import TyperCommand, TyperGroup

WIDEST = 120
"""The largest width of a line of help, since longer lines are hard to read."""
WIDTH = {"max_content_width": WIDEST}

RUNS = "Run"
START = "Start"
RESULTS = "Look at results"
CLUSTERS = "Describe clusters"
NODES = "Real nodes"
OUTPUT = "Output"


class HelpCommand(TyperCommand):
    """A command whose help shows the options in groups."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        _sections(formatter, _options(self, ctx))


class HelpGroup(TyperGroup):
    """A command with subcommands, which its help shows in groups by purpose."""

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
    """Return (group, (option, help)) for each option; options without a group come first."""
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
