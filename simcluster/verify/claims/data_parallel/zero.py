"""Claims about `zero`: plain data parallelism with a delay, in one process; and the traffic of each stage."""

from __future__ import annotations

from simcluster.verify.claim import Claim, Identity, Settings, Variant, Weights
from simcluster.verify.claims.data_parallel import all_reduce_dp
from simcluster.verify.faults import TOGETHER
from simcluster.workloads import Workload


def reference(workload: Workload, size: int, seed: int, steps: int, settings: Settings) -> Weights:
    """Plain data parallelism: nothing is sharded."""
    return all_reduce_dp.reference(workload, size, seed, steps, {**settings, "accumulate": 1})


def payload_bytes(size: int, model_bytes: int, steps: int, settings: Settings) -> int:
    """(N_d - 1)/N_d models from each of N_d ranks in every reduce-scatter and every all-gather.

    Stages 0 to 2: one of each per step. Stage 3: a second all-gather. The first forward pass needs none, since all
    ranks have drawn the same weights; instead the whole model is gathered at the end, and before if it is to be
    evaluated.
    """
    times = steps * (3 if settings["stage"] == 3 else 2)
    interval = settings["gather_interval"]
    if settings["stage"] == 3 and interval is not None:
        times += (steps - 1) // interval
    return times * (size - 1) * model_bytes


CLAIM = Claim(
    paper="Rajbhandari et al. 2020, section 5",
    reference=reference,
    reference_for=(
        {"stage": 0},
        {"stage": 2},
        {"stage": 3},
        {"stage": 3, "reduce": "direct", "gather": "broadcast", "prefetch": 0},
        {"stage": 2, "staleness": 2},
        {"stage": 3, "staleness": 1},
    ),
    variants={
        "stage": 3,
        "reduce": "direct",
        "gather": "broadcast",
        "prefetch": Variant(0, given={"stage": 3}),
        "staleness": 1,
        "gather_interval": Variant(1, given={"stage": 3}),
    },
    identities=(
        Identity({}, "one process", why="the mean of the ranks' gradients is the gradient of the joined batch"),
        *(
            Identity({"stage": 0}, "zero", {"stage": stage}, exact=True, why=f"ZeRO 0 = {stage}, to the bit")
            for stage in (1, 2, 3)
        ),
        Identity(
            {"stage": 3, "reduce": "direct"},
            "all_reduce_dp",
            {"schedule": "naive"},
            why="parted or not, sums by rank are sums by rank",
        ),
        Identity({"staleness": 2}, "all_reduce_dp", {"staleness": 2}, why="late by as many steps is late by as many"),
    ),
    payload_bytes=payload_bytes,
    replicas_agree=True,
    outcomes={name: end for name, end in TOGETHER.items() if "server" not in name and "," not in name},
)
