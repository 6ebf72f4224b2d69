"""Data parallelism by all-reduce: every rank keeps a whole replica and they average gradients, step by step.

This is what SmolCluster calls ClassicDP, and what Goyal et al. 2017 (section 2) analyse: with equal batches the mean of
the ranks' gradients is the gradient of the joined batch, so N ranks take the steps that one process would take.

This file knows ranks, gradients and one collective. It must not know a backend, a file or a clock.
"""

from __future__ import annotations

from typing import Literal

from simcluster.collectives import broadcast, flatten, naive_all_reduce, ring_all_reduce, unflatten
from simcluster.transport import Transport
from simcluster.workloads import Replica


async def all_reduce_dp(
    node: Transport,
    replica: Replica,
    *,
    schedule: Literal["ring", "naive"] = "ring",
    initial_weights: Literal["seed", "broadcast"] = "seed",
) -> None:
    """One gradient, one all-reduce and one step of the optimizer per batch.

    *schedule*: `ring` sends 2 (N-1)/N of the gradient's bytes per rank and step; `naive` sends N-1 times them, in one
    round instead of 2 (N-1). *initial_weights*: `seed` trusts that every rank drew the same weights from the common
    seed; `broadcast` sends rank 0's to all. Without either, replicas would average gradients of different points.
    """
    all_reduce = {"ring": ring_all_reduce, "naive": naive_all_reduce}[schedule]

    # Phase 1, agree: all replicas start from the same weights.
    if initial_weights == "broadcast":
        replica.load(await broadcast(node, replica.parameters, "initial weights"))

    for step, batch in enumerate(replica.batches(), start=1):
        # Phase 2, compute: the gradient of this rank's batch.
        loss, gradients = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))

        # Phase 3, reduce: the sum over ranks, in an order that the schedule fixes.
        total = await all_reduce(node, flatten(gradients), f"gradients/{step}")

        # Phase 4, apply: the mean, the same bits everywhere, so the replicas never part.
        mean = unflatten(total.div_(node.size), gradients)
        await node.compute(replica.apply, mean, cost=replica.apply_cost())
        node.record(step=step, loss=loss)
