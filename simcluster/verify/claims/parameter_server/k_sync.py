"""Claims about `k_sync`, which with its default, K = P, is the synchronous server."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from simcluster.verify.claim import Claim, Identity, Settings, Variant
from simcluster.verify.claims.parameter_server import sync_ps
from simcluster.verify.naive import account
from simcluster.verify.outcomes import SERVED
from simcluster.workloads import Workload


def reference(workload: Workload, size: int, seed: int, steps: int, settings: Settings) -> Sequence[Sequence[Tensor]]:
    if settings["k"] is None and not settings["batch"]:
        return sync_ps.reference(workload, size, seed, steps, {**settings, "pull_interval": 1, "polyak": 1.0})
    return []


def payload_bytes(size: int, model_bytes: int, steps: int, settings: Settings) -> int:
    """With K = P no gradient is late: a gradient up and weights down, for every step and worker."""
    return 2 * (size - 1) * steps * model_bytes


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
    payload_bytes=payload_bytes,
    contributions=account,
    replicas_agree=True,
    outcomes=SERVED,
)
