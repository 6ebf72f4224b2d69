"""Claims about `tensor_parallel`: one process on the joined batches of all ranks, however the model is split."""

from __future__ import annotations

from simcluster.verify.claim import Claim, Identity
from simcluster.verify.claims.model_parallel.pipeline import reference
from simcluster.verify.faults import TOGETHER

CLAIM = Claim(
    paper="Shoeybi et al. 2019, section 3",
    reference=reference,
    reference_for=({"schedule": "naive"},),
    variants={"schedule": "naive", "gather_interval": 3},
    identities=(
        Identity({}, "one process", why="a product is the sum of the products of its parts"),
        Identity({}, "all_reduce_dp", why="both train on the batches of all ranks"),
        Identity({}, "tensor_parallel", {"gather_interval": 1}, exact=True, why="gathering only looks"),
    ),
    outcomes=TOGETHER,
    # 84 heads and 336 columns: other world sizes are refused.
    workload="gpt",
    sizes=(1, 2, 3, 4, 7),
)
