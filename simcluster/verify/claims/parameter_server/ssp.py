"""Claims about `ssp`. With a bound of 0 its reference is that of a barrier; above, it depends on timing."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from simcluster.verify.claim import Claim, Identity, Settings
from simcluster.verify.claims.parameter_server import edp, sync_ps
from simcluster.verify.naive import account
from simcluster.verify.outcomes import SERVED
from simcluster.workloads import Workload


def reference(workload: Workload, size: int, seed: int, steps: int, settings: Settings) -> Sequence[Sequence[Tensor]]:
    if settings["staleness"] == 0:
        return sync_ps.reference(workload, size, seed, steps, {**settings, "pull_interval": 1, "polyak": 1.0})
    return edp.one_worker(workload, size, seed, steps, settings)


def payload_bytes(size: int, model_bytes: int, steps: int, settings: Settings) -> int:
    """A gradient up and weights down, for every clock of every worker."""
    return 2 * (size - 1) * steps * model_bytes


CLAIM = Claim(
    paper="Ho et al. 2013, section 2",
    order_free=False,
    reference=reference,
    reference_for=({"staleness": 0}, {"staleness": 0, "server_trains": False}),
    variants={"staleness": 0, "server_trains": False},
    identities=(
        Identity({"staleness": 0}, "sync_ps", exact=True, why="no rank runs ahead: bulk-synchronous"),
        Identity({"staleness": None}, "edp", exact=True, why="no rank waits: asynchronous"),
        Identity(
            {"staleness": 0, "server_trains": False},
            "sync_ps",
            {"server_trains": False},
            exact=True,
            why="of the workers alone, too",
        ),
    ),
    payload_bytes=payload_bytes,
    contributions=account,
    outcomes=SERVED,
)
