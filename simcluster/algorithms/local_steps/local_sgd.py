"""Local SGD: every rank trains alone for H steps, then all ranks continue from the mean of their
weights.

Stich 2019, algorithm 1. With a fraction of the ranks per round and a mean weighted by shard sizes
it is FedAvg (McMahan et al. 2017, algorithm 1), except that an all-reduce replaces the server.
FedProx and SCAFFOLD correct the local gradients (see `Drift`).
Around a ring a rank sends 2 (n-1)/n times the weights' bytes per round, 1/H of the bytes sent when
gradients are averaged at every step.
"""

from __future__ import annotations

from collections import deque
from typing import Annotated, Literal

import torch
from annotated_types import Gt, Le
from pydantic import PositiveInt

from simcluster.algorithms.by_place import PlacedSchedule, Shares, Sites, all_reduce_by
from simcluster.algorithms.facts import Facts, by_samples
from simcluster.algorithms.local_steps.drift import Drift, check_uncompressed, zero_variates
from simcluster.algorithms.local_steps.local_step_copies import local_sgd_copies
from simcluster.algorithms.local_steps.rounds import adopt, changed, train_alone
from simcluster.algorithms.steps import resumable, rounds
from simcluster.algorithms.timed import timed
from simcluster.collectives import all_reduce, flatten, unflatten
from simcluster.compression import Compression, Mean
from simcluster.transport import Transport
from simcluster.workloads import Replica
from simcluster.workloads.optimizers import NonNegativeFinite


@Facts(
    copies=local_sgd_copies, in_step=True, evenly=by_samples,
    world=lambda size, settings: check_uncompressed(settings["control_variates"], settings["compression"]),
)  # fmt: skip
async def local_sgd(
    node: Transport,
    replica: Replica,
    *,
    interval: PositiveInt = 10,
    participation: Annotated[float, Gt(0), Le(1)] = 1.0,
    weighting: Literal["uniform", "samples"] = "uniform",
    proximal: NonNegativeFinite = 0.0,
    control_variates: bool = False,
    schedule: PlacedSchedule = "ring",
    sites: Sites = "topology",
    shares: Shares = "topology",
    compression: Compression = "none",
) -> None:
    """Run rounds of *interval* steps (H), then average; the last round takes the steps that are
    left.

    All ranks end with equal weights.

    *participation*: the fraction C of ranks that train in a round, at least one rank. All ranks
    draw the same set; a rank outside it skips that round's batches. *weighting*: `samples` weights
    ranks by shard size; `uniform` weights them by batch size, which is equal on all ranks unless
    the workload says otherwise. *proximal*: mu of FedProx, the pull of local weights towards the
    last mean. *control_variates*: whether to correct gradients as in SCAFFOLD, for twice the bytes.
    *schedule*: the schedule of the all-reduce; `ring` sends the fewest bytes, in 2 (n-1) rounds;
    `direct` sends as few in two rounds; `hierarchical` sums inside *sites* first; in
    `bandwidth_aware` each rank sums its part of *shares*. *compression*: the compression of the
    messages, which are changes since the last mean.
    """
    check_uncompressed(control_variates, compression)
    n = await _samples(node, replica) if weighting == "samples" else replica.batch_sizes
    chosen_ranks = max(round(participation * node.size), 1)
    variates = zero_variates(replica) if control_variates else {}
    averaged = [*replica.parameters, variates["c"]] if control_variates else replica.parameters
    mean = Mean(compression, node, "change", averaged, all_reduce_by(schedule, sites, shares))
    state = resumable(replica, x=flatten(replica.parameters), mean=mean, **variates)

    async for step, batches in rounds(replica, interval, keep=state):
        # Phase 1, select: S, the ranks of this round. The draw depends only on the seed and the
        # number of earlier steps.
        before = (step - 1) // interval * interval
        drawn = node.rng.shared("local_sgd", str(before)).permutation(node.size)
        chosen = sorted(int(rank) for rank in drawn[:chosen_ranks])
        share = n[node.rank] / sum(n[rank] for rank in chosen) if node.rank in chosen else 0.0

        # Phase 2, train: H local steps, or none.
        if share:
            corrections = (state.c, state.c_i) if control_variates else ()
            drift = Drift(node, replica, state.x, proximal, corrections)
            loss = await train_alone(node, replica, batches, drift.corrected)
            if control_variates:
                state.c_i = drift.mean
        else:
            deque(batches, maxlen=0)
            replica.ledger.settle(replica.ledger.drawn, used=False)

        # Phase 3, average: x + sum over S of n_k / n (x_k - x), as a mean over all ranks, bit-identical on all of them.
        change = await timed(node, changed, state.x, replica.parameters, share * node.size)
        sent = unflatten(change, replica.parameters)
        if control_variates:  # c becomes the mean of all c_i
            sent.append(await timed(node, torch.mul, state.c_i, n[node.rank] / sum(n) * node.size))
        changes = await state.mean(sent, f"average/{step}")
        if control_variates:
            state.c = changes.pop().clone()
        state.x = await timed(node, torch.add, state.x, flatten(changes))
        await timed(node, adopt, replica.parameters, state.x)
        node.record(step=step, contributions=len(chosen), **({"loss": loss} if share else {}))


async def _samples(node: Transport, replica: Replica) -> list[int]:
    """Return the size of every rank's shard. In a run without values, all shards count as equal."""
    own = torch.zeros(node.size, dtype=torch.int64)
    own[node.rank] = max(replica.shard_size, 1)
    return [int(size) for size in (await all_reduce(node, own, "samples")).tolist()]
