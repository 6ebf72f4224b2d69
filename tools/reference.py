"""`python -m tools.reference`: writes docs/reference.md, with a line for each command.

On the site, docs/support/commands.py adds the options of each command.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from simcluster.cli.app import app
from tests.support.root import ROOT

PAGE = ROOT / "docs" / "reference.md"

_HEAD = """# Commands

`simcluster COMMAND --help` prints a command's options; the site, built by `make docs`, has them below.
`make reference` writes this page.

Exit code 0: done. 1: the run failed; the error, the seed and the run directory are printed, and the traceback's path
if your own code raised. 2: the request was wrong, and nothing was written.

`simcluster --version` prints the version, `simcluster --install-completion` installs completion for your shell.
"""
_OPTIONS = """
```{generated} commands
simcluster COMMAND --help
```
"""


def page() -> str:
    """Return the whole page: all commands, in the groups of `simcluster --help`."""
    groups: dict[str, list[str]] = {}
    for path, command, group in commands():
        purpose = " ".join(command.help.split("\n\n")[0].split())
        groups.setdefault(group, []).append(f"- `{path}`: {purpose}\n")
    return _HEAD + "".join(f"\n**{group}**\n\n{''.join(lines)}" for group, lines in groups.items()) + _OPTIONS


def commands() -> Iterator[tuple[str, Any, str]]:
    """Yield (command line, command, its group in the help)."""
    for name, command in get_command(app).commands.items():
        for path, one in _below(command, f"simcluster {name}"):
            yield path, one, command.rich_help_panel


def _below(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "commands"):
        yield path, command
        return
    for name, one in command.commands.items():
        yield from _below(one, f"{path} {name}")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
