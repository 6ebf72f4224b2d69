"""A record of the faults that happened in a run, and when. Both backends keep one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from simcluster.fault_plans.kinds import Fault


@dataclass
class _LogEntry:
    fault: Fault
    spells: list[list[float | None]] = field(default_factory=list)
    dropped_bytes: int = 0


class FaultLog:
    """*now* is the run's clock, virtual or real; *sees_bytes* says whether `drops` is called at all."""

    def __init__(self, now: Callable[[], float], *, sees_bytes: bool) -> None:
        self._now, self._sees_bytes = now, sees_bytes
        self._entries: dict[int, _LogEntry] = {}  # by the fault's identity, in the order of their first spells

    def begins(self, fault: Fault) -> None:
        self._entry(fault).spells.append([self._now(), None])

    def ends(self, fault: Fault) -> None:
        """End the last spell of *fault*. A fault that never began does not end."""
        entry = self._entries.get(id(fault))
        if entry is not None and entry.spells[-1][1] is None:
            entry.spells[-1][1] = self._now()

    def drops(self, fault: Fault, size_bytes: int) -> None:
        """Count a message of *size_bytes* that left its sender but was dropped because of *fault*."""
        self._entry(fault).dropped_bytes += size_bytes

    @property
    def dropped_bytes(self) -> int:
        return sum(entry.dropped_bytes for entry in self._entries.values())

    def rows(self) -> list[dict[str, Any]]:
        """Return the faults for summary.json, in order, with their spells; an end of null means the end of the run."""
        return [
            {
                "kind": entry.fault.kind,
                "target": entry.fault.target,
                "plan": dict(entry.fault.spec),
                "spells_s": entry.spells,
                "dropped_bytes": entry.dropped_bytes if self._sees_bytes else None,
            }
            for entry in self._entries.values()
            if entry.spells
        ]

    def _entry(self, fault: Fault) -> _LogEntry:
        if id(fault) not in self._entries:
            self._entries[id(fault)] = _LogEntry(fault)
        return self._entries[id(fault)]
