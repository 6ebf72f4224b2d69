"""Explain wrong options and arguments, which typer finds, in the form of our other errors."""

from __future__ import annotations

import re
import sys
from typing import Any

from simcluster.errors import Problem
from simcluster.spelling import nearest

_TYPES = {"integer": "a whole number", "number": "a number"}
"""Word in typer's messages, whatever the version -> our description of the type."""


def misuse_of(error: Any) -> Problem:
    """Return typer's usage *error* as a problem."""
    kind, command = type(error).__name__, error.ctx.command if getattr(error, "ctx", None) is not None else None
    message = error.format_message()
    if kind == "BadOptionUsage":
        return Problem(error.option_name, "nothing", "a value")
    if command is None:
        return Problem("command", message, "")
    if kind == "NoSuchOption":
        options = [option for param in command.params for option in (*param.opts, *param.secondary_opts)]
        options = [option for option in options if option.startswith("-")]  # arguments have names, too
        expected = nearest(error.option_name, [*options, "--help"])
        if {"--script", "-m"} & set(error.ctx.args + sys.argv):
            expected = f"{expected} Arguments of the script follow `--`."
        return Problem(error.option_name, "unknown option", expected)
    param = getattr(error, "param", None)
    if kind == "MissingParameter" and param is not None:
        name = param.opts[-1] if param.opts[0].startswith("-") else param.metavar or param.name.upper()
        words = (param.help or "it").rstrip(".")
        return Problem(name, "nothing", words[0].lower() + words[1:])
    if kind == "BadParameter" and param is not None:
        expected = next((ours for theirs, ours in _TYPES.items() if theirs in message), message.partition(": ")[2])
        if (limit := re.search(r"(greater|less) than or equal to (\S+)", expected)) is not None:
            expected = f"at {'least' if limit[1] == 'greater' else 'most'} {limit[2]}"
        return Problem(param.opts[-1], _given(param.opts), expected)
    if (named := re.search(r"No such command '(.*?)'", message)) is not None:
        return Problem(named[1], "unknown command", nearest(named[1], command.commands))
    if (extra := re.search(r"unexpected extra arguments?\S* \((.*)\)", message)) is not None:
        return Problem(str(command.name), f"{extra[1]!r} after all its arguments", "no more")
    return Problem(str(command.name), message.rstrip("."), "")


def help_of(error: Any) -> str:
    """Return a hint that points to the help of the command that caused typer's usage *error*."""
    names: list[str] = []
    context = getattr(error, "ctx", None)
    while context is not None and context.parent is not None:
        names.insert(0, context.info_name)
        context = context.parent
    return " ".join(["see: simcluster", *names, "--help"])


def _given(options: list[str]) -> str:
    """Return the value of the first of *options* on the command line, quoted."""
    for here, after in zip(sys.argv, [*sys.argv[1:], ""], strict=True):
        name, equals, value = here.partition("=")
        if name in options:
            return repr(value if equals else after)
    return "another value"
