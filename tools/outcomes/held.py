"""What the words of the table promise, and what is wrong with a run of which that is said."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from simcluster.errors import PeerLost

WORDS: Final = ("all end well", "goes on", "re-forms", "restored")


def hit(plan: dict[str, Any]) -> str:
    """The node that *plan*, one fault, is about."""
    return str(plan["node"])


def is_missed(plan: dict[str, Any]) -> bool:
    """Whether it is not there at the end, if nobody goes to any lengths for it."""
    return plan["kind"] in ("crash", "leave") or (plan["kind"] == "hang" and "for" not in plan)


def wrong(
    word: str, plan: dict[str, Any], summary: dict[str, Any], error: Exception | None, *, by_time: bool = False
) -> Iterator[str]:
    """What *word* promises of a run with *plan* that is not so; *restored* is of one that may begin again.

    *by_time*: when its time is over everybody ends, whoever was not let in as well.
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
    """What is not so of a run that may not begin again, and is lost without the node that *plan* hits."""
    if not isinstance(error, PeerLost) or error.name != hit(plan):
        yield f"{hit(plan)} was to be missed, and it ended with {error!r}"
    if summary["status"] != "failed" or summary.get("error", {}).get("type") != "PeerLost":
        yield f"its summary says {summary['status']}, {summary.get('error')}"
