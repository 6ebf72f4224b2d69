"""Claims about `softsync`."""

from __future__ import annotations

from simcluster.verify.claim import Claim, Identity, Variant
from simcluster.verify.claims.parameter_server.edp import one_worker
from simcluster.verify.faults import SERVED
from simcluster.verify.naive import account

CLAIM = Claim(
    paper="Zhang, Gupta, Lian and Liu 2016, sections 2 and 3",
    order_free=False,
    reference=one_worker,
    variants={"n": 2, "damping": Variant("inverse", given={"n": 3}), "server_trains": False},
    identities=(
        Identity({"n": 3}, "edp", exact=True, why="one gradient an update", sizes=(3,)),
        Identity({}, "k_async", {"batch": True}, exact=True, why="K = lambda gradients, whosever they are"),
        Identity({"n": 2}, "k_async", {"k": 2, "batch": True}, exact=True, why="K = 4 // 2", sizes=(4,)),
    ),
    contributions=account,
    outcomes=SERVED,
)
