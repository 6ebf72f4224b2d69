"""Says how groups of ranks were formed anew: as instants of a run's trace, as cells of a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from simcluster.runs import words

Row: TypeAlias = Mapping[str, Any]


def trace_events(rows: Sequence[Row], pid: int) -> Iterator[dict[str, Any]]:
    """The process *pid*, called groups, of a Chrome trace: an instant for each."""
    if not rows:
        return
    yield {"ph": "M", "name": "process_name", "ts": 0, "pid": pid, "tid": 0, "args": {"name": "groups"}}
    for row in rows:
        yield {
            "ph": "i",
            "s": "g",
            "cat": "regroup",
            "name": f"{words.plural(len(row['members']), 'rank')} from step {row['step']}",
            "ts": round(row["time_s"] * 1e9) / 1e3,
            "pid": pid,
            "tid": 1,
            "args": {key: row[key] for key in ("lost", "joined", "members")},
        }


def cells(row: Row) -> list[str]:
    """One row of the report's table, as text: when, from which step, lost, joined, who goes on."""
    names = [", ".join(row[kind]) or words.ABSENT for kind in ("lost", "joined", "members")]
    return [words.seconds(row["time_s"]), str(row["step"]), *names]
