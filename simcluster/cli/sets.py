"""Reads `--set KEY=VALUE` and `--option KEY=VALUE` on a command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from simcluster.errors import Problem, UsageError


def overrides(sets: Sequence[str], flag: str = "--set") -> dict[str, Any]:
    """{dotted key: value} of the "KEY=VALUE" texts behind *flag*. Raises UsageError with all that are none."""
    from simcluster.documents.yaml import parse_value

    found: dict[str, Any] = {}
    problems = []
    for text in sets:
        name, separator, value = text.partition("=")
        if not separator or not name:
            problems.append(Problem(flag, repr(text), "KEY=VALUE"))
            continue
        try:
            found[name.strip()] = parse_value(value)
        except UsageError as error:
            problems += [
                Problem(f"{flag} {name}", repr(value) + (f" ({wrong.found})" if wrong.found else ""), wrong.expected)
                for wrong in error.problems
            ]
    if problems:
        raise UsageError(problems)
    return found
