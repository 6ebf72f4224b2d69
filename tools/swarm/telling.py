"""A verdict in words: the broken invariants, the case, and the command that replays it."""

from __future__ import annotations

from typing import Any

from tools.swarm.case import Case
from tools.swarm.trial import Verdict


def replay(seed: int) -> str:
    """Return the command that replays *seed*."""
    return f"python -m tools.swarm --seed {seed}"


def headline(verdict: Verdict) -> str:
    """Return a line with the first broken invariant of *verdict*, and the command that
    replays it.
    """
    name, how = verdict.broken[0]
    more = f" (and {len(verdict.broken) - 1} more)" if len(verdict.broken) > 1 else ""
    return f"{replay(verdict.case.seed)}  # {verdict.case.algorithm}: {name}: {_short(how)}{more}"


def describe(case: Case) -> list[str]:
    """Return the lines that describe *case*."""
    document = case.document
    shown = [key for key in ("algorithm", "workload", "stop", "checkpoint", "regroup") if key in document]
    lines = [f"{key}: {_plain(document[key])}" for key in shown]
    lines.append(f"topology: {document['topology']['name']} of {len(case.workers)}; options: {_plain(case.options)}")
    return [*lines, *(f"fault: {_plain(fault)}" for fault in case.faults)]


def told(verdict: Verdict) -> list[str]:
    """Return the lines that describe *verdict*."""
    lines = describe(verdict.case)
    if verdict.refused:
        return [*lines, f"refused: {verdict.refused}"]
    return [*lines, *(f"BROKEN {name}: {how}" for name, how in verdict.broken)] + ([] if verdict.broken else ["held"])


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}={inner}" for key, inner in value.items()) or "none"
    return str(value)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) < 160 else line[:157] + "..."
