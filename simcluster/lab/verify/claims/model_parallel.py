"""Claims about split models: wherever the model is split, the result is that of one process."""

from __future__ import annotations

from simcluster.lab.verify.claim import Claim, Identity, Settings, Variant, Weights
from simcluster.lab.verify.faults import TOGETHER
from simcluster.workloads import Workload, train_alone


def pipeline(workload: Workload, size: int, seed: int, steps: int, settings: Settings) -> Weights:
    """Return the weights of one process that trains the whole model.

    The other ranks have none: only rank 0 has all weights at the end.
    """
    return [train_alone(workload, size, seed, steps)]


SPEEDS = {"flops_per_s": [1e9, 4e9, 1e9]}

PIPELINE = Claim(
    paper="Huang et al. 2019, section 2; Narayanan et al. 2021, section 2.2",
    reference=pipeline,
    reference_for=({"schedule": "gpipe"}, {"schedule": "gpipe", "micro_batches": 1}),
    variants={
        "schedule": "gpipe",
        "order": [2, 0, 1],
        "micro_batches": 6,
        "chunks": Variant(1, {"schedule": "interleaved"}),
        "cuts": [1, 2],
        "flops_per_s": SPEEDS["flops_per_s"],
        "bandwidth_Bps": Variant([1.0, 1.0, 1.0], SPEEDS),
        "gather_interval": 3,
    },
    identities=(
        Identity({}, "one process", why="micro-batches of one size: the sum of their shares is the batch's gradient"),
        Identity({"schedule": "interleaved"}, "pipeline", {"schedule": "gpipe"}, why="another order", sizes=(1, 2, 3)),
        Identity(
            {"schedule": "interleaved", "chunks": 1},
            "pipeline",
            exact=True,
            why="one chunk per rank leaves nothing to mix",
        ),
        Identity({}, "all_reduce_dp", why="both train on the batches of all ranks"),
        Identity({"order": [2, 0, 1]}, "pipeline", exact=True, why="the same stages on other ranks", sizes=(3,)),
        Identity({"order": [2, 1]}, "one process", why="rank 0 only receives the weights", sizes=(3,)),
    ),
    outcomes=TOGETHER,
    workload="gpt",
)

TENSOR_PARALLEL = Claim(
    paper="Shoeybi et al. 2019, section 3",
    reference=pipeline,
    reference_for=({"schedule": "naive"},),
    variants={"schedule": "naive", "gather_interval": 3},
    identities=(
        Identity({}, "one process", why="a product is the sum of the products of its parts"),
        Identity({}, "all_reduce_dp", why="both train on the batches of all ranks"),
        Identity({}, "tensor_parallel", {"gather_interval": 1}, exact=True, why="gathering only looks"),
    ),
    outcomes=TOGETHER,
    # The world size must divide the 84 heads and 336 columns.
    workload="gpt",
    sizes=(1, 2, 3, 4, 7),
)
