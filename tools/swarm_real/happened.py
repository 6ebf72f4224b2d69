"""The events of a real run: the faults of its plan that began, and the acts from outside that met a living node.

All of it becomes faults of one plan, whose promise tools.swarm computes.
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

TYPED = {"PeerLost": PeerLost, "NobodyLeft": NobodyLeft}
SUDDEN = ("crash", "hang")
"""Kinds that no process survives to tell of, if the silence is long."""


def as_played(drawn: Drawn, lived: Lived) -> tuple[Played, Hits]:
    """The run as if its plan had held all that happened to it, and what that may have done."""
    summary = read(lived.folder)
    rows = [*summary.get("faults", ()), *_rows(drawn, lived), *_late(drawn.case, summary, _error(summary, lived))]
    rows = [row for row in rows if not _too_late(row, summary)]
    case = drawn.case.with_faults([*drawn.case.faults, *(row["plan"] for row in rows if row.get("outside"))])
    plan = read_experiment(case.document)
    summary["faults"] = rows
    played = Played(case, lived.folder, _error(summary, lived), None, plan, Counted(), summary)
    hits = hits_of(case, plan, rows)
    if unplanned_loss(played) and not died_early(lived, played) and must_be_done(case, hits):
        # Judged like a run that is done: that it tells of the loss by its exit code is checked elsewhere.
        played = replace(played, error=None, summary=summary | {"status": "done"})
    return played, hits


def unplanned_loss(played: Played) -> bool:
    """Whether the error of *played* names a node that was lost by what no plan knew of."""
    error = played.error
    outside = {row["plan"]["node"] for row in played.happened if row.get("outside") and row["kind"] in SUDDEN}
    return isinstance(error, PeerLost) and error.name in outside and error.name in played.lost


def died_early(lived: Lived, played: Played) -> bool:
    """Whether a node was killed or stopped before the run began, which ends it whatever the algorithm does."""
    early = {act.node for act in lived.early if act.kind in ("kill", "stop")}
    return isinstance(played.error, PeerLost) and played.error.name in early


def _rows(drawn: Drawn, lived: Lived) -> Iterator[dict[str, Any]]:
    for act in lived.done:
        yield {"kind": act.fault["kind"], "plan": act.fault, "spells_s": [[0.0, None]], "outside": True}


def _late(case: Case, summary: dict[str, Any], error: BaseException | None) -> Iterator[dict[str, Any]]:
    """With *min_workers* a run does not wait for all, and those that come later join; *error* may name one of them."""
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
    """Whether the node had handed everything in when it was killed."""
    name = row["plan"].get("node", "")
    node = summary.get("nodes", {}).get(name, {})
    missed = any(name in regroup["lost"] for regroup in summary.get("regroups", ()))
    lived = node.get("finished_s") is not None and not node.get("incarnation") and not missed
    return row["kind"] == "crash" and lived and name not in summary.get("lost", {}) and "restarts" not in summary


def _error(summary: dict[str, Any], lived: Lived) -> BaseException | None:
    """The error that *summary* tells of, as it was raised."""
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
