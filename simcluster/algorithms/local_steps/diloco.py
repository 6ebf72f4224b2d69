"""DiLoCo: many local AdamW steps, then one outer step with Nesterov momentum along the replicas' mean movement.

Douillard et al. 2023, algorithm 1. With an outer learning rate of 1 and no momentum it is local SGD (Stich 2019). The
inner optimizer is the workload's, and its state stays local; theta and the outer momentum are equal on all ranks.
"""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge, Lt
from pydantic import PositiveFloat, PositiveInt

from simcluster.algorithms.by_place import PlacedSchedule, Shares, Sites, all_reduce_by
from simcluster.algorithms.facts import Facts, by_samples
from simcluster.algorithms.local_steps.local_step_copies import diloco_copies
from simcluster.algorithms.local_steps.rounds import adopt, nesterov, outer_gradient, train_alone
from simcluster.algorithms.steps import resumable, rounds
from simcluster.algorithms.timed import timed
from simcluster.collectives import flatten, unflatten
from simcluster.compression import Compression, Mean
from simcluster.transport import Transport
from simcluster.workloads import Replica
from simcluster.workloads.shares import weighed


@Facts(copies=diloco_copies, in_step=True, evenly=by_samples)
async def diloco(
    node: Transport,
    replica: Replica,
    *,
    interval: PositiveInt = 20,
    outer_learning_rate: PositiveFloat = 0.7,
    outer_momentum: Annotated[float, Ge(0), Lt(1)] = 0.9,
    schedule: PlacedSchedule = "ring",
    sites: Sites = "topology",
    shares: Shares = "topology",
    compression: Compression = "none",
) -> None:
    """Run rounds of *interval* inner steps (H) and one outer step; the last round takes the steps
    that are left.

    *schedule*: the schedule of the all-reduce. `ring` sends the fewest bytes, in 2 (n-1) rounds;
    `direct` sends as few in two rounds, which suits links with high latency; `hierarchical` sums
    inside *sites* first; in `bandwidth_aware` each rank sums its part of *shares*. *compression*: the
    compression of the outer gradients.
    """
    theta = flatten(replica.parameters)
    mean = Mean(compression, node, "outer gradient", replica.parameters, all_reduce_by(schedule, sites, shares))
    state = resumable(replica, theta=theta, m=theta.new_zeros(len(theta)), mean=mean)

    async for step, batches in rounds(replica, interval, keep=state):
        # Phase 1, inner: H steps of the local optimizer on local data.
        loss = await train_alone(node, replica, batches)

        # Phase 2, outer gradient: Delta = 1/k sum_i (theta - theta_i), weighted by the samples of a batch.
        moved = unflatten(await timed(node, outer_gradient, state.theta, replica.parameters), replica.parameters)
        delta = flatten(await state.mean(weighed(replica, moved), f"outer/{step}"))

        # Phase 3, outer step: bit-identical on all ranks, which continue from its result.
        outer = timed(node, nesterov, state.theta, state.m, delta, outer_learning_rate, outer_momentum)
        state.theta, state.m = await outer
        await timed(node, adopt, replica.parameters, state.theta)
        node.record(step=step, loss=loss)
