"""A log of the faults of a run and of the times at which they happened. Both backends keep one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from simcluster.fault_plans.kinds import Fault

MOST_ENTRIES = 10_000
"""Limit on the faults in a log: a world may act at every instant."""


@dataclass
class _LogEntry:
    fault: Fault
    spells: list[list[float | None]] = field(default_factory=list)
    dropped_bytes: int = 0


class FaultLog:
    """The log of the faults of one run.

    *now* returns the run's time, virtual or real. *sees_bytes* says whether the backend calls
    `drops`; if it does not, the log has no counts of dropped bytes.
    """

    def __init__(self, now: Callable[[], float], *, sees_bytes: bool) -> None:
        self._now, self._sees_bytes = now, sees_bytes
        self.left_out = 0  # faults beyond MOST_ENTRIES
        # Id of the fault -> entry, in the order of first spells.
        self._entries: dict[int, _LogEntry] = {}

    def begins(self, fault: Fault) -> None:
        if len(self._entries) >= MOST_ENTRIES and id(fault) not in self._entries:
            self.left_out += 1
        else:
            self._entry(fault).spells.append([self._now(), None])

    def ends(self, fault: Fault) -> None:
        """End the current spell of *fault*; do nothing if the fault never began."""
        entry = self._entries.get(id(fault))
        if entry is not None and entry.spells[-1][1] is None:
            entry.spells[-1][1] = self._now()

    def drops(self, fault: Fault, size_bytes: int) -> None:
        """Count a message of *size_bytes* that was dropped in the network because of *fault*."""
        if id(fault) in self._entries or not self.left_out:
            self._entry(fault).dropped_bytes += size_bytes

    @property
    def dropped_bytes(self) -> int:
        return sum(entry.dropped_bytes for entry in self._entries.values())

    def rows(self) -> list[dict[str, Any]]:
        """Return the faults that happened and their spells, for summary.json, in the order in which
        they began.

        The end of a spell is null if the spell never ended.
        """
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
