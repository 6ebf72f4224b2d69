"""Commands of a page, run while it is built: `terminal("simcluster run quickstart")` shows command and output."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

COLUMNS = 96
TIMEOUT_S = 570
_folder: tempfile.TemporaryDirectory[str] | None = None


def folder() -> Path:
    """Return the directory in which this page's commands run, and enter it; files that its cells write are there."""
    global _folder
    if _folder is None:
        _folder = tempfile.TemporaryDirectory(prefix="page-")
        os.chdir(_folder.name)
    return Path(_folder.name)


def files(page: str) -> None:
    """Write the files that *page* shows, blocks of code with a name as caption, where its commands run."""
    text = (Path(__file__).parents[1] / page).read_text(encoding="utf-8")
    for name, content in re.findall(r"^```\{code-block\} \w+\n:caption: (\S+)\n\n(.*?)^```$", text, flags=re.S | re.M):
        (folder() / name).write_text(content, encoding="utf-8")


def terminal(command: str, *shows: str, until: str | None = None, exit_code: int = 0) -> None:
    """Run *command* and print it with what it prints, up to the line that begins with *until*.

    Raises AssertionError, which fails the build, for another exit code, or if a text of *shows* is not printed.
    """
    program, *arguments = shlex.split(command, comments=True)
    assert program == "simcluster", "a page runs no other program"
    done = subprocess.run(
        [sys.executable, "-m", "simcluster", *arguments],
        cwd=folder(),
        env=os.environ | {"COLUMNS": str(COLUMNS), "NO_COLOR": "1", "TERM": "dumb"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    text = done.stdout.strip().replace(f"{folder()}{os.sep}", "")
    assert done.returncode == exit_code, f"{command}: exit code {done.returncode}\n{text}"
    words = " ".join(text.split())
    for expected in shows:
        assert expected in words, f"{command}: expected {expected!r} in\n{text}"
    print(f"$ {command}\n{_up_to(text, until)}")


def _wrapped(line: str) -> str:
    """Return a *line* of prose wrapped, with further lines indented; shorter ones and tables stay as they are."""
    is_prose = len(line) > 1.2 * COLUMNS and "  " not in line.strip()
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    return (
        "\n".join(textwrap.wrap(line, COLUMNS, break_long_words=False, subsequent_indent=indent)) if is_prose else line
    )


def _up_to(text: str, until: str | None) -> str:
    lines = [_wrapped(line) for line in text.splitlines()]
    if until is None:
        return "\n".join(lines)
    end = next(at for at, line in enumerate(lines) if line.strip().startswith(until))
    return "\n".join([*lines[:end], "..."])
