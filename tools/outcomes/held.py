"""The promise that each word of the table makes, and checks of a run against it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from simcluster.errors import PeerLost

WORDS: Final = ("all end well", "goes on", "re-forms", "restored")


def hit(plan: dict[str, Any]) -> str:
    """Return the node that the fault *plan* hits."""
    return str(plan["node"])


def is_missed(plan: dict[str, Any]) -> bool:
    """Return whether the node is still absent at the end of a run that does not restart."""
    return plan["kind"] in ("crash", "leave") or (plan["kind"] == "hang" and "for" not in plan)


def wrong(
    word: str, plan: dict[str, Any], summary: dict[str, Any], error: Exception | None, *, by_time: bool = False
) -> Iterator[str]:
    """Yield each broken promise of *word* in a run with the fault *plan*.

    "restored" assumes that the run may restart. *by_time* tells whether the run has a limit on its
    time: then it may end before a node rejoins, without a loss.
    """
    if [row["kind"] for row in summary.get("faults", ())] != [plan["kind"]]:
        yield f"faults are {summary.get('faults')}, and one {plan['kind']} was planned"
    if error is not None:
        yield f"it ended with {type(error).__name__}: {error}"
        return
    lost = set(summary.get("lost", {}))
    there = {name for name, node in summary["nodes"].items() if node["finished_s"] is not None}
    absent = word == "goes on" or (word == "re-forms" and is_missed(plan))
    stood_by = by_time and plan["kind"] in ("restart", "join") and not lost
    if lost != ({hit(plan)} if absent and not stood_by else set()):
        yield f"lost are {summary.get('lost', {})}"
    if not there >= set(summary["nodes"]) - lost:
        yield f"of those that are not lost, {sorted(set(summary['nodes']) - lost - there)} did not end"
    if bool(summary.get("regroups")) != (word == "re-forms"):
        yield f"groups were formed anew: {summary.get('regroups')}"
    if len(summary.get("restarts", ())) != (word == "restored"):
        yield f"it began again: {summary.get('restarts')}"


def wrong_failure(plan: dict[str, Any], summary: dict[str, Any], error: Exception | None) -> Iterator[str]:
    """Yield each problem of a run that may not restart, and must fail with the loss of *plan*'s
    node.
    """
    if not isinstance(error, PeerLost) or error.name != hit(plan):
        yield f"{hit(plan)} was to be missed, and it ended with {error!r}"
    if summary["status"] != "failed" or summary.get("error", {}).get("type") != "PeerLost":
        yield f"its summary says {summary['status']}, {summary.get('error')}"
