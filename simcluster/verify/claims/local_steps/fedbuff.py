"""Claims about FedBuff."""

from __future__ import annotations

from simcluster.verify.claim import Claim, Variant
from simcluster.verify.faults import SERVED
from simcluster.verify.naive import account, up_and_down

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
    payload_bytes=up_and_down,
    contributions=account,
    outcomes=SERVED,
)
