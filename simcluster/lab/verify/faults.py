"""The faults for which a claim can declare an outcome, as entries of an experiment's fault list.

The cluster has three nodes n0, n1 and n2 around a switch. If the algorithm has a server, it is n0.
Each fault hits n2 or n0, or the link of one of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simcluster.lab.verify.claim import Outcome

AT_S = {"sim": 0.005, "sockets": 0.3}
"""Backend -> the time at which a fault starts."""
DEAD_S = {"sim": 0.02, "sockets": 2.0}
"""Backend -> the time after which a silent or unreachable node counts as dead."""
SHORT_S = {"sim": 0.006, "sockets": 0.4}
"""Backend -> the duration of a short fault: less than DEAD_S, so that no node counts as dead."""

_SHORT = "short"

_PLANS: Mapping[str, Mapping[str, Any]] = {
    "crash of a worker": {"kind": "crash", "node": "n2"},
    "crash of the server": {"kind": "crash", "node": "n0"},
    "restart of a worker": {"kind": "restart", "node": "n2", "after": _SHORT},
    "restart of the server": {"kind": "restart", "node": "n0", "after": _SHORT},
    "short hang": {"kind": "hang", "node": "n2", "for": _SHORT},
    "long hang of a worker": {"kind": "hang", "node": "n2"},
    "long hang of the server": {"kind": "hang", "node": "n0"},
    "slow-down": {"kind": "slow", "node": "n2", "factor": 5},
    "short cut": {"kind": "cut", "link": "n2-sw", "for": _SHORT},
    "long cut of a worker": {"kind": "cut", "link": "n2-sw"},
    "long cut of the server": {"kind": "cut", "link": "n0-sw"},
    "short cut, one way": {"kind": "cut", "link": "n2-sw", "towards": "n2", "for": _SHORT},
    "long cut, towards a worker": {"kind": "cut", "link": "n2-sw", "towards": "n2"},
    "long cut, from a worker": {"kind": "cut", "link": "n2-sw", "towards": "sw"},
    "flap": {"kind": "flap", "link": "n2-sw", "for": _SHORT, "period": "2 ms"},
    "short partition": {"kind": "partition", "groups": [["n0", "n1"], ["n2"]], "for": _SHORT},
    "long partition": {"kind": "partition", "groups": [["n0", "n1"], ["n2"]]},
    "reset": {"kind": "reset", "groups": [["n0", "n1"], ["n2"]]},
    "latency": {"kind": "latency", "link": "n2-sw", "for": _SHORT, "add": "2 ms"},
    "bandwidth": {"kind": "bandwidth", "link": "n2-sw", "for": _SHORT, "factor": 0.01},
    "loss": {"kind": "loss", "link": "n2-sw", "for": _SHORT, "probability": 0.3},
}

NAMES = tuple(_PLANS)
"""The names of the faults for `Claim.outcomes`, as in the table of docs/faults.md."""


def plan_of(fault: str, backend: str) -> dict[str, Any]:
    """Return *fault* as an entry of an experiment's fault list for *backend*."""
    given = {key: f"{SHORT_S[backend]} s" if value == _SHORT else value for key, value in _PLANS[fault].items()}
    return {**given, "at": f"{AT_S[backend]} s"}


_PASSING = (
    "short hang", "slow-down", "short cut", "short cut, one way", "flap", "short partition", "reset", "latency",
    "bandwidth", "loss",
)  # fmt: skip
"""Names of the faults that delay an algorithm but stop no rank: all ranks finish."""

TOGETHER: Mapping[str, Outcome] = {name: "ends well" if name in _PASSING else "fails" for name in NAMES}
"""The outcomes of algorithms in which every rank needs all others."""

GOES_ON: Mapping[str, Outcome] = {name: "ends well" if name in _PASSING else "goes on" for name in NAMES}
"""The outcomes of algorithms in which the other ranks continue without a lost rank."""

REFORMED: Mapping[str, Outcome] = {
    **GOES_ON, "restart of a worker": "ends well", "restart of the server": "ends well"
}  # fmt: skip
"""The outcomes of algorithms that re-form the group: lost ranks leave, restarted ranks rejoin."""

SERVED: Mapping[str, Outcome] = {
    **GOES_ON, "restart of a worker": "ends well", "crash of the server": "fails", "restart of the server": "fails",
    "long hang of the server": "fails",
}  # fmt: skip
"""The outcomes of algorithms in which workers need the server, but the server needs no worker."""

APART: Mapping[str, Outcome] = {
    name: "ends well" for name in NAMES if name.startswith("long") and ("cut" in name or "partition" in name)
}
"""The outcomes of algorithms in which both sides of a lasting partition continue: no rank is lost."""
