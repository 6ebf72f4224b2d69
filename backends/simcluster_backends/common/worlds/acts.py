"""What one world has done: its faults in effect, and the numbers that it has set."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from math import inf
from numbers import Real
from typing import TYPE_CHECKING, Any

from simcluster.documents.values import extreme
from simcluster.errors import UsageError
from simcluster.fault_plans import kinds

if TYPE_CHECKING:
    from simcluster_backends.common.worlds.stage import WorldStage


class WorldActs:
    """The acts of the world *name* that are in effect, by a key for each.

    - *conditions*: (kind, link, end) -> the number that it has set towards that end, and that of the fault.
    - *speeds*: rank -> the speed that it has set.
    - *restarts*: the number of nodes that it has restarted so far.
    """

    def __init__(self, name: str, stage: WorldStage) -> None:
        self.stage = stage
        self._name = name
        self._numbers: dict[Hashable, int | None] = {}
        self.conditions: dict[tuple[type[kinds.LinkCondition], str, str], tuple[float, float]] = {}
        self.speeds: dict[int, float] = {}
        self.restarts = 0

    def __contains__(self, key: Hashable) -> bool:
        return key in self._numbers

    def has_begun(self, key: Hashable) -> bool:
        """Return whether a fault of *key* is in effect, other than by `begin_nothing`."""
        return self._numbers.get(key) is not None

    def begin_nothing(self, key: Hashable) -> None:
        """Note an act that has no effect, so that its `end` has none either."""
        self._numbers[key] = None

    def begin(self, key: Hashable, make: Callable[..., kinds.Fault], spec: dict[str, Any], **fields: Any) -> None:
        """Begin the fault that *make* makes of *fields*; *spec* describes it in the log."""
        spells = ((self.stage.now_s(), inf),)
        fault = make(spells=spells, spec={"world": self._name, **spec}, **fields)
        self._numbers[key] = self.stage.begin(fault)

    def end(self, key: Hashable) -> None:
        number = self._numbers.pop(key)
        if number is not None:
            self.stage.end(number)


def number(what: str, value: object, expected: str, fits: Callable[[float], bool]) -> float:
    """Return *value* as a float. Raise UsageError of *what* unless it *fits*, within the range of files."""
    if isinstance(value, bool) or not isinstance(value, Real) or not fits(float(value)):
        raise UsageError(what, repr(value), expected)
    if value != inf and (limits := extreme(float(value))):
        raise UsageError(what, repr(value), limits)
    return float(value)
