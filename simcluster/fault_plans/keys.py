"""The table of the kinds of faults: the class of each kind, and its keys in a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from simcluster.documents import values
from simcluster.fault_plans import kinds
from simcluster.fault_plans.kinds import Fault

REPEATED = ("every", "mean_every", "times")


class OwnKey(NamedTuple):
    """A key that only some kinds of faults have.

    It fills *field* of the fault; *value* validates it, and *expected* describes a valid value in
    the error for a missing key.
    """

    field: str
    value: values.ValueValidator
    expected: str


class FaultKind(NamedTuple):
    """A kind of fault: the class *make*, and the keys that a file may have besides `kind` and `at`.

    *shared* are keys that several kinds have and that are read in the same way for each of them.
    Those in *required* must be present. *own* are the keys that fill fields of the class; all must
    be present.
    """

    make: type[Fault]
    shared: tuple[str, ...]
    required: tuple[str, ...] = ()
    own: Mapping[str, OwnKey] = {}

    @property
    def keys(self) -> tuple[str, ...]:
        return (*self.shared, *self.own)


def _number(field: str, fits: Callable[[float], bool], expected: str, **limits: float) -> OwnKey:
    return OwnKey(field, values.number(fits, expected, **limits), expected)


def _share(field: str, what: str) -> OwnKey:
    expected = f"a number above 0 and below 1: {what}"
    return _number(field, lambda x: 0 < x < 1, expected, exclusiveMinimum=0, exclusiveMaximum=1)


AT_STEP = "at_step"
_NODE = (AT_STEP, "node", "for", *REPEATED)
_LINK = (AT_STEP, "link", "towards", "for", *REPEATED)
_ADDED = OwnKey("extra_s", values.time, "the time that every message takes longer, like 20 ms")
_SLOWER = _number("factor", lambda x: x > 1, "a number above 1: times as slow", exclusiveMinimum=1)
_LOST = _number(
    "probability",
    lambda x: 0 < x <= values.MOST_LOST,
    f"a share of packets above 0, at most {values.LOST}",
    exclusiveMinimum=0,
    maximum=values.MOST_LOST,
)
SHARE_DOWN = _share("down", "the share of each period that is cut")

KINDS = {
    "crash": FaultKind(kinds.Crash, (AT_STEP, "node")),
    "restart": FaultKind(kinds.Restart, (AT_STEP, "node", "after", *REPEATED), ("after",)),
    "join": FaultKind(kinds.Join, ("node",)),
    "leave": FaultKind(kinds.Leave, (AT_STEP, "node", "notice")),
    "hang": FaultKind(kinds.Hang, _NODE),
    "slow": FaultKind(kinds.Slow, _NODE, own={"factor": _SLOWER}),
    "cut": FaultKind(kinds.Cut, _LINK),
    "flap": FaultKind(kinds.Flap, (AT_STEP, "link", "towards", "for", "period", "down"), ("for",)),
    "partition": FaultKind(kinds.Partition, (AT_STEP, "groups", "for", *REPEATED)),
    "reset": FaultKind(kinds.Reset, (AT_STEP, "groups", *REPEATED)),
    "latency": FaultKind(kinds.Latency, _LINK, own={"add": _ADDED}),
    "bandwidth": FaultKind(kinds.Bandwidth, _LINK, own={"factor": _share("factor", "what is left of the bandwidth")}),
    "loss": FaultKind(kinds.Loss, _LINK, own={"probability": _LOST}),
}
"""The kinds of faults by name. The reader, the schema and the error messages use this table."""
