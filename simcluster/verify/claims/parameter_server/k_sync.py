"""Claims about `k_sync`, which with its default, K = P, is the synchronous server."""

from __future__ import annotations

from simcluster.verify.claim import Claim, Identity, Settings, Variant, Weights
from simcluster.verify.claims.parameter_server import sync_ps
from simcluster.verify.faults import SERVED
from simcluster.verify.naive import account, up_and_down
from simcluster.workloads import Workload


def reference(workload: Workload, size: int, seed: int, steps: int, settings: Settings) -> Weights:
    if settings["k"] is None and not settings["batch"]:
        return sync_ps.reference(workload, size, seed, steps, settings)
    return []


CLAIM = Claim(
    paper="Dutta et al. 2018, section 2",
    reference=reference,
    reference_for=({"server_trains": False},),
    variants={"k": Variant(2, uneven=True), "batch": Variant(True, uneven=True), "server_trains": False},
    identities=(
        Identity({}, "one process", why="the mean of the ranks' gradients is the gradient of the joined batch"),
        Identity({}, "sync_ps", exact=True, why="K = P"),
        Identity({"k": 3}, "sync_ps", exact=True, why="K = P", sizes=(3,)),
        Identity(
            {"k": 2, "server_trains": False},
            "sync_ps",
            {"wait_for": 2, "cancel_late": True, "server_trains": False},
            exact=True,
            why="backup workers whose late work is cancelled",
            sizes=(3, 4, 7),
        ),
    ),
    payload_bytes=up_and_down,
    contributions=account,
    replicas_agree=True,
    outcomes=SERVED,
)
