"""docs/reference.md, written from the commands themselves: `python -m tests.support.reference`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from simcluster.cli.app import app
from simcluster.cli.terminal.help import NODES
from tests.support.root import ROOT

PAGE = ROOT / "docs" / "reference.md"

_HEAD = """# Commands

Written by `make reference` from `simcluster COMMAND --help`; a test fails if it is out of date.

Exit code 0: done. 1: the run failed; the error, the seed and the run directory are printed, and the traceback's path
if your own code raised. 2: the request was wrong, and nothing was written.

`simcluster --version` prints the version, `simcluster --install-completion` installs completion for your shell.
"""


def page() -> str:
    """Return the whole page."""
    return _HEAD + "".join(f"\n{section}" for section in _sections(get_command(app), "simcluster"))


def _sections(group: Any, path: str) -> Iterator[str]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _sections(command, f"{path} {name}")
        else:
            yield _section(command, f"{path} {name}")


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


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
