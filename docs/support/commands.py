"""Every command with its arguments and options as Markdown, read from the commands themselves."""

from __future__ import annotations

from typing import Any

from simcluster.cli.terminal.help import NODES
from tools.reference import commands


def page() -> str:
    """Return a section for each command."""
    return "\n".join(_section(command, path) for path, command, _ in commands())


def _section(command: Any, path: str) -> str:
    arguments = [one for one in command.params if not one.opts[0].startswith("-")]
    options = [one for one in command.params if one.opts[0].startswith("-") and one.name != "help"]
    usage = " ".join([path, *map(_argument, arguments), *(["[OPTIONS]"] if options else [])])
    text = f"## {path}\n\n{command.help.strip()}\n\n    {usage}\n"
    rows = [(one.metavar or one.name.upper(), one) for one in arguments] + [(_option(one), one) for one in options]
    if rows:
        text += "\n| option | what it does |\n| --- | --- |\n" + "".join(_row(name, one) for name, one in rows)
    return text


def _argument(param: Any) -> str:
    name = (param.metavar or param.name.upper()) + ("..." if param.nargs == -1 else "")
    return name if param.required else f"[{name}]"


def _option(param: Any) -> str:
    return ", ".join([*param.opts, *param.secondary_opts]) + (f" {param.metavar}" if param.metavar else "")


def _row(name: str, param: Any) -> str:
    words = " ".join((param.help or "").split())
    if param.rich_help_panel == NODES:  # the help has them in a group
        words = f"Real nodes: {words[0].lower()}{words[1:]}"
    is_told = param.default is not None and param.default is not False and not param.secondary_opts
    default = f" Default: `{param.default}`." if is_told and not callable(param.default) else ""
    required = " Required." if param.required and name.startswith("-") else ""
    cells = [cell.replace("|", "\\|") for cell in (f"`{name}`", f"{words}{default}{required}")]
    return f"| {' | '.join(cells)} |\n"
