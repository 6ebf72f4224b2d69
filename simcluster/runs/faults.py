"""The faults of a run as events of its trace, as bands of time, and as cells of a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from simcluster.runs import words

Row: TypeAlias = Mapping[str, Any]


class Band(NamedTuple):
    """One spell of a fault; it ends with the run at the latest."""

    label: str
    start_s: float
    end_s: float
    is_moment: bool


def bands(rows: Sequence[Row], elapsed_s: float) -> list[Band]:
    """Return every spell of every fault, in the order of the rows."""
    found = []
    for row in rows:
        kind = row["kind"]
        label = f"{'not there before its join' if kind == 'join' else kind}: {row['target']}"
        for start_s, end_s in row["spells_s"]:
            found.append(Band(label, start_s, max(start_s, elapsed_s) if end_s is None else end_s, kind == "crash"))
    return found


def trace_events(rows: Sequence[Row], elapsed_s: float, pid: int) -> Iterator[dict[str, Any]]:
    """Yield the process *pid* of a Chrome trace, named faults: a thread for each fault, a span for each spell."""
    if not rows:
        return
    yield {"ph": "M", "name": "process_name", "ts": 0, "pid": pid, "tid": 0, "args": {"name": "faults"}}
    for thread, row in enumerate(rows, start=1):
        for band in bands([row], elapsed_s):
            start_ns, end_ns = round(band.start_s * 1e9), round(band.end_s * 1e9)
            shape = {"ph": "i", "s": "g"} if band.is_moment else {"ph": "X", "dur": (end_ns - start_ns) / 1e3}
            place = {"ts": start_ns / 1e3, "pid": pid, "tid": thread}
            yield {**shape, "cat": "fault", "name": band.label, **place, "args": dict(row["plan"])}


def cells(row: Row) -> list[str]:
    """Return a row of the report's table: kind, target, settings, when, bytes dropped."""
    settings = {name: value for name, value in row["plan"].items() if name not in _SAID_ELSEWHERE}
    shown = [_when(start_s, end_s, row["kind"]) for start_s, end_s in row["spells_s"][:3]]
    more = len(row["spells_s"]) - len(shown)
    return [
        str(row["kind"]),
        str(row["target"]),
        ", ".join(f"{name} {value}" for name, value in settings.items()) or words.ABSENT,
        ", ".join(shown) + (f" and {words.plural(more, 'more time')}" if more else ""),
        words.size(row["dropped_bytes"]) if row["dropped_bytes"] else words.ABSENT,
    ]


_SAID_ELSEWHERE = ("kind", "node", "link", "towards", "groups", "at", "for")


def _when(start_s: float, end_s: float | None, kind: str) -> str:
    if kind == "crash":
        return f"at {words.seconds(start_s)}"
    if kind == "join":
        return "never" if end_s is None else f"at {words.seconds(end_s)}"
    until = "to the end" if end_s is None else f"to {words.seconds(end_s)}"
    return f"{words.seconds(start_s)} {until}"
