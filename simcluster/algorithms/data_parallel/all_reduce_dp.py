"""Data parallelism by all-reduce: every rank holds a whole replica, and all average their gradients at each step.

SmolCluster's ClassicDP, analysed by Goyal et al. 2017 (section 2): the mean of the ranks' gradients, weighted by
their samples, is the gradient of the joined batch, so N ranks take the steps that a single process would. Buckets and
accumulation follow Li et al. 2020 (PyTorch Distributed, sections 3.2.3 and 3.2.4), bounded staleness follows pipelined
SGD (Li et al. 2018, Pipe-SGD, section 3).
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Literal

from pydantic import NonNegativeInt, PositiveInt
from torch import Tensor

from simcluster.algorithms.by_place import PlacedSchedule, Shares, Sites, all_reduce_by
from simcluster.algorithms.data_parallel.buckets import cut_into_buckets, in_order, mean_gradient
from simcluster.algorithms.data_parallel.data_parallel_copies import all_reduce_copies
from simcluster.algorithms.facts import Facts, always, by_samples
from simcluster.algorithms.steps import Lag, Late, resumable, rounds
from simcluster.collectives import broadcast
from simcluster.compression import Compression, Mean
from simcluster.transport import Transport
from simcluster.workloads import Replica


@Facts(
    copies=all_reduce_copies, in_step=True, evenly=by_samples, joins=always, keeps_shapes=True,
    layered=lambda settings: settings.get("bucket_bytes") is not None,
)  # fmt: skip
async def all_reduce_dp(
    node: Transport,
    replica: Replica,
    *,
    schedule: PlacedSchedule = "ring",
    sites: Sites = "topology",
    shares: Shares = "topology",
    initial_weights: Literal["seed", "broadcast"] = "seed",
    compression: Compression = "none",
    bucket_bytes: PositiveInt | None = None,
    accumulate: PositiveInt = 1,
    staleness: NonNegativeInt = 0,
) -> None:
    """Compute a gradient, average it by all-reduce and take an optimizer step, once per
    *accumulate* batches.

    *schedule*: the schedule of the all-reduce. `ring` sends the fewest bytes, 2 (N-1)/N times the
    gradient per rank and step, in 2 (N-1) rounds; `direct` sends as few in 2 rounds, to all ranks
    at once; `naive` sends N-1 times the gradient in one round; the others take about 2 lg N rounds,
    except those by place: `hierarchical` sums inside *sites* first, and in `bandwidth_aware` each
    rank sums its part of *shares*. *initial_weights*: `seed` trusts every rank to draw the same
    weights from the common seed; `broadcast` sends rank 0's to all. *compression*: that of the
    gradients; anything except `none` has its own communication pattern, and only power_sgd still
    uses *schedule*. *bucket_bytes*: gradients leave in buckets of at least this size, those of the
    last layers while earlier layers are still being computed; null sends everything at the end.
    *accumulate*: the number of batches per step; their mean gradient is sent. *staleness*: each
    gradient is taken at weights that lack exactly this many of the latest updates. A rank may thus
    be that many steps ahead of the slowest, and the result never depends on timing. The *lead* is
    recorded: the number of all-reduces that this rank has joined and that have not finished.
    """
    buckets = cut_into_buckets(replica, bucket_bytes)
    by_schedule = all_reduce_by(schedule, sites, shares)
    means = [
        Mean(compression, node, f"gradients/{number}", [replica.shapes[place] for place in places], by_schedule)
        for number, places in enumerate(bucket.places for bucket in buckets)
    ]

    # Phase 1, agree: all replicas start from the same weights.
    if initial_weights == "broadcast":
        replica.load(await broadcast(node, replica.parameters, "initial weights"))

    state = resumable(replica, means=means)
    lag = Lag(replica, staleness, size=accumulate)

    def reduce(tag: str, bucket: int, gradients: list[Tensor]) -> asyncio.Task[list[Tensor]]:
        # Phase 3, reduce: the mean over ranks, while the device works on the rest of phase 2.
        tag = f"{tag}/{bucket}" if len(buckets) > 1 else tag
        return reductions.create_task(state.means[bucket](gradients, tag))

    async def update(late: Late) -> None:
        # Phase 4, apply: the mean, in step order and bit-identical on all ranks, so the replicas stay equal.
        mean = in_order(buckets, await late.results())
        loss, lead, *count = late.note  # older checkpoints have no count
        await node.compute(replica.apply, mean, *(count or [accumulate]), cost=replica.apply_cost())
        node.record(step=late.step, loss=loss, **({"lead": lead} if staleness else {}))

    async with asyncio.TaskGroup() as reductions:
        async for step, drawn in rounds(replica, accumulate, keep=state, lag=lag):
            # Phase 2, compute: the mean gradient of this rank's batches, at weights that lack *staleness* updates.
            lead = lag.lead()
            leave = partial(reduce, f"gradients/{-(-step // accumulate)}")
            batches = list(drawn)
            loss, reducing = await mean_gradient(node, replica, batches, buckets, leave)
            lag.send_off(Late(step, reducing, loss, lead, len(batches)))
            for late in lag.due(step):
                await update(late)
        for late in lag.rest():
            await update(late)
    if staleness:
        node.record(step=replica.steps, **lag.leads())
