"""The outcome of a run for each fault, for the common kinds of algorithms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from simcluster.verify import faults
from simcluster.verify.claim import Outcome

_PASSING: Final = (
    "short hang",
    "slow-down",
    "short cut",
    "short cut, one way",
    "flap",
    "short partition",
    "latency",
    "bandwidth",
    "loss",
)
"""Faults that only delay any algorithm: all ranks finish."""

TOGETHER: Final[Mapping[str, Outcome]] = {name: "ends well" if name in _PASSING else "fails" for name in faults.NAMES}
"""Algorithms in which every rank needs all others."""

REFORMED: Final[Mapping[str, Outcome]] = {
    **{name: "ends well" if name in _PASSING else "goes on" for name in faults.NAMES},
    "restart of a worker": "ends well",
    "restart of the server": "ends well",
}
"""Algorithms with groups that are formed again without lost ranks, and with rejoined ones."""

SERVED: Final[Mapping[str, Outcome]] = {
    **{name: "ends well" if name in _PASSING else "goes on" for name in faults.NAMES},
    "restart of a worker": "ends well",
    "crash of the server": "fails",
    "restart of the server": "fails",
    "long hang of the server": "fails",
}
"""Algorithms with workers that need the server, which trains too and needs no worker."""
