"""Streaming DiLoCo: the parameters are synchronised in fragments, one after another, while training continues.

Douillard et al. 2025, algorithm 2. Each fragment is synchronised every H steps, at an offset from
the others, so the peak traffic is that of a single fragment. The result of a synchronisation is
applied tau steps after its start and blended with the local weights, which keep a share alpha. With
one fragment, no overlap and alpha 0 it is DiLoCo.
"""

from __future__ import annotations

import asyncio
from typing import Annotated

from annotated_types import Ge, Lt
from pydantic import NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor

from simcluster.algorithms.by_place import PlacedSchedule, Shares, Sites, all_reduce_by
from simcluster.algorithms.facts import Facts, by_samples
from simcluster.algorithms.local_steps.local_step_copies import streaming_diloco_apart, streaming_diloco_copies
from simcluster.algorithms.local_steps.rounds import adopt, nesterov, train_alone
from simcluster.algorithms.steps import Lag, Late, resumable, steps
from simcluster.algorithms.timed import timed
from simcluster.collectives import flatten
from simcluster.compression import Compression, Mean
from simcluster.transport import Transport
from simcluster.workloads import Replica
from simcluster.workloads.shares import weighed


@Facts(
    copies=streaming_diloco_copies, in_step=True, evenly=by_samples, apart=streaming_diloco_apart,
    runs_on="only its last step synchronises all fragments",
)  # fmt: skip
async def streaming_diloco(
    node: Transport,
    replica: Replica,
    *,
    interval: PositiveInt = 20,
    fragments: PositiveInt = 4,
    overlap: NonNegativeInt = 1,
    blend: Annotated[float, Ge(0), Lt(1)] = 0.5,
    outer_learning_rate: PositiveFloat = 0.7,
    outer_momentum: Annotated[float, Ge(0), Lt(1)] = 0.9,
    schedule: PlacedSchedule = "ring",
    sites: Sites = "topology",
    shares: Shares = "topology",
    compression: Compression = "none",
) -> None:
    """Synchronise each of *fragments* (P) equal pieces of the flat parameters every *interval* steps (H).

    *overlap* (tau): the number of inner steps between the start and the end of a fragment's
    synchronisation, at most H. *blend* (alpha): the share of the local weights in the result,
    except at the end of the run, where it is 0. *schedule*: the schedule of the all-reduces;
    `hierarchical` sums inside *sites* first; in `bandwidth_aware` each rank sums its part of
    *shares*.
    *compression*: the compression of the outer gradients.
    """
    theta = list(flatten(replica.parameters).tensor_split(fragments))
    by_schedule = all_reduce_by(schedule, sites, shares)
    mean = [Mean(compression, node, f"fragment {p}", [piece], by_schedule) for p, piece in enumerate(theta)]
    state = resumable(replica, theta=theta, m=[piece.new_zeros(len(piece)) for piece in theta], mean=mean)
    # A regrouping drops the synchronisations in flight; each fragment is then averaged at its next
    # turn.
    apart = streaming_diloco_apart({"overlap": overlap, "fragments": fragments, "interval": interval})
    lag = Lag(replica, min(overlap, interval), lacking=False, apart=apart)

    async def begin(p: int, step: int) -> None:
        """Compute fragment p's outer gradient now, and average it over ranks while training
        continues.
        """
        moved = weighed(replica, [await timed(node, _moved, state.theta[p], replica.parameters, fragments, p)])
        lag.send_off(Late(step, [group.create_task(state.mean[p](moved, f"fragment{p}/{step}"))], p))

    async def end(late: Late, alpha: float) -> None:
        """Wait for a fragment's mean and take its outer step, keeping the share alpha of the local
        weights.
        """
        ((delta,),), (p,) = await late.results(), late.note
        outer = timed(node, nesterov, state.theta[p], state.m[p], delta, outer_learning_rate, outer_momentum)
        state.theta[p], state.m[p] = await outer
        await timed(node, _blend, replica.parameters, state.theta[p], fragments, p, alpha)

    async with asyncio.TaskGroup() as group:
        async for step, batch in steps(replica, keep=state, lag=lag):
            # Phase 1, inner: one step of the local optimizer.
            loss, last = await train_alone(node, replica, [batch]), step == replica.steps

            # Phase 2, outer: end the synchronisations begun tau steps ago, and begin those now due.
            for late in lag.rest() if last else lag.due(step):
                await end(late, blend)
            for p in range(fragments):
                if last or (step + p * interval // fragments) % interval == 0:
                    await begin(p, step)
            for late in lag.rest() if last else lag.due(step):
                await end(late, 0.0 if last else blend)
            node.record(step=step, loss=loss)


def _moved(theta: Tensor, parameters: list[Tensor], fragments: int, p: int) -> Tensor:
    return theta - flatten(parameters).tensor_split(fragments)[p]


def _blend(parameters: list[Tensor], theta: Tensor, fragments: int, p: int, alpha: float) -> None:
    """Set fragment p of *parameters* to alpha times itself plus 1 - alpha times *theta*."""
    x = flatten(parameters)
    piece = x.tensor_split(fragments)[p]
    piece.copy_(theta.lerp(piece, alpha))
    adopt(parameters, x)
