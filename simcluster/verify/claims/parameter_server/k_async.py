"""Claims about `k_async`, which with its default, K = P, is a barrier."""

from __future__ import annotations

from simcluster.verify.claim import Claim, Identity, Settings, Variant, Weights
from simcluster.verify.claims.parameter_server import edp, sync_ps
from simcluster.verify.faults import SERVED
from simcluster.verify.naive import account, up_and_down
from simcluster.workloads import Workload


def reference(workload: Workload, size: int, seed: int, steps: int, settings: Settings) -> Weights:
    """All ranks together, each once per step; or one after another."""
    if settings["k"] is None and not settings["batch"]:
        return sync_ps.reference(workload, size, seed, steps, settings)
    return edp.one_worker(workload, size, seed, steps, settings)


CLAIM = Claim(
    paper="Dutta et al. 2018, section 2",
    reference=reference,
    reference_for=({"server_trains": False},),
    variants={"k": 2, "batch": Variant(True, given={"k": 2}), "server_trains": False},
    identities=(
        Identity({}, "sync_ps", exact=True, why="K = P"),
        Identity({"k": 1}, "edp", exact=True, why="K = 1"),
        Identity({"k": 1, "batch": True}, "edp", exact=True, why="K = 1"),
        Identity({"k": 1, "batch": True}, "softsync", {"n": 3}, exact=True, why="K = lambda / n", sizes=(3,)),
    ),
    payload_bytes=up_and_down,
    contributions=account,
    replicas_agree=True,
    outcomes=SERVED,
)
