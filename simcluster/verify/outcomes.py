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
"""Everybody ends well, whatever the algorithm: it takes longer."""

TOGETHER: Final[Mapping[str, Outcome]] = {name: "ends well" if name in _PASSING else "fails" for name in faults.NAMES}
"""Everybody needs everybody."""

REFORMED: Final[Mapping[str, Outcome]] = {
    **{name: "ends well" if name in _PASSING else "goes on" for name in faults.NAMES},
    "restart of a worker": "ends well",
    "restart of the server": "ends well",
}
"""Everybody needs everybody of the group, which is formed anew without whoever is lost, and with who comes back."""

SERVED: Final[Mapping[str, Outcome]] = {
    **{name: "ends well" if name in _PASSING else "goes on" for name in faults.NAMES},
    "restart of a worker": "ends well",
    "crash of the server": "fails",
    "restart of the server": "fails",
    "long hang of the server": "fails",
}
"""Workers need the server, which trains as well and needs nobody."""
