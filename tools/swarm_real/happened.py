"""The events of a real run: planned faults that began, and acts from outside that reached a
process.

All events become faults of one plan. tools.swarm computes the promise for that plan.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from simcluster.errors import NobodyLeft, PeerLost, RunError
from simcluster.experiment import read_experiment
from tools.swarm.case import Case
from tools.swarm.hits import Hits, hits_of
from tools.swarm.play import Counted, Played
from tools.swarm.promise import must_be_done
from tools.swarm_real.draw import Drawn
from tools.swarm_real.play import Lived, read

SUDDEN = ("crash", "hang")
"""Kinds of faults that keep a process from reporting its own loss."""


def as_played(drawn: Drawn, lived: Lived) -> tuple[Played, Hits]:
    """Return (the run as if its plan had contained all events, the damage that the events may have
    done).
    """
    summary = read(lived.folder)
    rows = [*summary.get("faults", ()), *_rows(drawn, lived), *_late(drawn.case, summary, _error(summary, lived))]
    rows = [row for row in rows if not _too_late(row, summary)]
    case = drawn.case.with_faults([*drawn.case.faults, *(row["plan"] for row in rows if row.get("outside"))])
    plan = read_experiment(case.document)
    summary["faults"] = rows
    played = Played(case, lived.folder, _error(summary, lived), None, plan, Counted(), summary)
    hits = hits_of(case, plan, rows)
    if unplanned_loss(played) and not died_early(lived, played) and must_be_done(case, hits):
        # Judge this run as if it had ended well. Another check requires that its exit code reports
        # the loss.
        played = replace(played, error=None, summary=summary | {"status": "done"})
    return played, hits


def unplanned_loss(played: Played) -> bool:
    """Return whether the run reports the loss of a node that was killed or stopped from outside."""
    error = played.error
    outside = {row["plan"]["node"] for row in played.happened if row.get("outside") and row["kind"] in SUDDEN}
    return isinstance(error, PeerLost) and error.name in outside and error.name in played.lost


def died_early(lived: Lived, played: Played) -> bool:
    """Return whether the run failed because a node was killed or stopped before training began.

    Such a loss ends a run of any algorithm.
    """
    early = {act.node for act in lived.early if act.kind in ("kill", "stop")}
    return isinstance(played.error, PeerLost) and played.error.name in early


def _rows(drawn: Drawn, lived: Lived) -> Iterator[dict[str, Any]]:
    for act in lived.done:
        yield {"kind": act.fault["kind"], "plan": act.fault, "spells_s": [[0.0, None]], "outside": True}


def _late(case: Case, summary: dict[str, Any], error: BaseException | None) -> Iterator[dict[str, Any]]:
    """Yield a join for each node that came late without a plan.

    With *min_workers* a run does not wait for all nodes. *error* may be the loss of a late node.
    """
    planned = {fault["node"] for fault in case.faults if fault["kind"] in ("restart", "join")}
    if "min_workers" not in case.options:
        return
    lost = dict(summary.get("lost", {}))
    if isinstance(error, PeerLost):
        lost[error.name] = error.reason
    for number, (name, node) in enumerate(summary.get("nodes", {}).items()):
        came = node.get("incarnation", 0) > 0 or "join" in lost.get(name, "")
        if came and name not in planned:
            fault = {"kind": "join", "node": name, "at": f"{number + 1} us"}
            yield {"kind": "join", "plan": fault, "spells_s": [[0.0, None]], "outside": True}


def _too_late(row: dict[str, Any], summary: dict[str, Any]) -> bool:
    """Return whether a node was killed only after it had delivered all its results."""
    name = row["plan"].get("node", "")
    node = summary.get("nodes", {}).get(name, {})
    missed = any(name in regroup["lost"] for regroup in summary.get("regroups", ()))
    lived = node.get("finished_s") is not None and not node.get("incarnation") and not missed
    return row["kind"] == "crash" and lived and name not in summary.get("lost", {}) and "restarts" not in summary


def _error(summary: dict[str, Any], lived: Lived) -> BaseException | None:
    """Return the exception that *summary* reports, or None for a run that ended well."""
    told = summary.get("error")
    if told is None:
        return None if summary else RuntimeError(f"no summary, exit code {lived.code}: {lived.said[-500:]}")
    if told["type"] == "PeerLost":
        found = re.match(r"rank (\d+) \(([^)]*)\) is lost(?:: (.*))?", told["message"], re.DOTALL)
        if found is not None:
            return PeerLost(int(found[1]), found[2], found[3] or "")
    if told["type"] == "NobodyLeft":
        return NobodyLeft(summary.get("lost", {}))
    return RunError(f"{told['type']}: {told['message']}")
