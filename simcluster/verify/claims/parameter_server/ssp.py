"""Claims about `ssp`. With a bound of 0 its reference is that of a barrier; above, it depends on timing."""

from __future__ import annotations

from simcluster.verify.claim import Claim, Identity, Settings, Weights
from simcluster.verify.claims.parameter_server import edp, sync_ps
from simcluster.verify.faults import SERVED
from simcluster.verify.naive import account, up_and_down
from simcluster.workloads import Workload


def reference(workload: Workload, size: int, seed: int, steps: int, settings: Settings) -> Weights:
    if settings["staleness"] == 0:
        return sync_ps.reference(workload, size, seed, steps, settings)
    return edp.one_worker(workload, size, seed, steps, settings)


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
    payload_bytes=up_and_down,
    contributions=account,
    outcomes=SERVED,
)
