"""A verdict in words: what is broken, on which case, and the line that plays it again."""

from __future__ import annotations

from typing import Any

from tools.swarm.case import Case
from tools.swarm.trial import Verdict


def replay(seed: int) -> str:
    """The line that plays *seed* again."""
    return f"python -m tools.swarm --seed {seed}"


def headline(verdict: Verdict) -> str:
    """One line on what is broken."""
    name, how = verdict.broken[0]
    more = f" (and {len(verdict.broken) - 1} more)" if len(verdict.broken) > 1 else ""
    return f"{replay(verdict.case.seed)}  # {verdict.case.algorithm}: {name}: {_short(how)}{more}"


def describe(case: Case) -> list[str]:
    """Lines on a *case*: every option that matters."""
    document = case.document
    shown = [key for key in ("algorithm", "workload", "stop", "checkpoint", "regroup") if key in document]
    lines = [f"{key}: {_plain(document[key])}" for key in shown]
    lines.append(f"topology: {document['topology']['name']} of {len(case.workers)}; options: {_plain(case.options)}")
    return [*lines, *(f"fault: {_plain(fault)}" for fault in case.faults)]


def told(verdict: Verdict) -> list[str]:
    """Everything on a *verdict*."""
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
