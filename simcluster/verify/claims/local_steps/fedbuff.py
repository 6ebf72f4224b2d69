"""Claims about FedBuff."""

from __future__ import annotations

from simcluster.verify.claim import Claim, Settings, Variant
from simcluster.verify.naive import account, rounds
from simcluster.verify.outcomes import SERVED


def _bytes(size: int, model: int, steps: int, settings: Settings) -> int:
    # A change up and weights down, per worker and round.
    return 2 * (size - 1) * rounds(steps, settings["interval"]) * model


CLAIM = Claim(
    paper="Nguyen et al. 2022, algorithm 1",
    settings={"interval": 2},
    order_free=False,
    variants={
        "interval": 1,
        "buffer": 1,
        "server_learning_rate": 0.5,
        "damping": "none",
        "max_staleness": Variant(0, given={"buffer": 1}),
        "compression": "int8",
        "server_trains": False,
    },
    payload_bytes=_bytes,
    contributions=account,
    outcomes=SERVED,
)
