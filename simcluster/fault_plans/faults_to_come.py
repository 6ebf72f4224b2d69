"""Which faults of a plan a run still meets that begins somewhere after its start, or begins again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from simcluster.fault_plans.kinds import Fault, Join, Spell, may_lose

_NEAR_S = 1e-9
"""Times of a run that begins again are sums, so one moment may differ by rounding."""


def faults_to_come(faults: Sequence[Fault], began_s: float, happened_s: float | None = None) -> tuple[Fault, ...]:
    """Return those of *faults* that a run meets which begins at *began_s*, in seconds after that.

    A fault that can take a node or a link happens once: a spell of it that began before *began_s*, or by *happened_s*
    in an earlier attempt, is not repeated. A late join has happened when the node has come. Other faults are conditions
    (slow, latency, bandwidth, loss), which hold in each of their spells whenever the run is there.
    """
    found = []
    for fault in faults:
        left = tuple(
            (max(start_s - began_s, 0.0), end_s - began_s)
            for start_s, end_s in fault.spells
            if _is_to_come(fault, (start_s, end_s), began_s, happened_s)
        )
        if left:
            found.append(replace(fault, spells=left))
    return tuple(found)


def _is_to_come(fault: Fault, spell: Spell, began_s: float, happened_s: float | None) -> bool:
    start_s, end_s = spell
    over_s = began_s if happened_s is None else max(began_s, happened_s + _NEAR_S)
    if not may_lose(fault):
        return end_s > began_s
    if isinstance(fault, Join):
        return end_s > over_s
    return start_s >= over_s
