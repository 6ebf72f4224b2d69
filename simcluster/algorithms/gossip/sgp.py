"""Stochastic gradient push: gossip over directed edges, where nobody can know what share of it others take.

Assran et al. 2019 (ICML), algorithm 1. A rank gives equal shares of its weights x_i and of a number w_i, which begins
as 1, to itself and to those that it sends to; so the columns of P sum to 1, and the sums of x and w over all ranks
stay. Rows need not: what a rank has too much or too little of, x_i and w_i have alike, and z_i = x_i / w_i is right.
"""

from __future__ import annotations

from typing import Literal

from pydantic import NonNegativeInt

from simcluster.algorithms.facts import Facts
from simcluster.algorithms.gossip.facts import SUMS_STAY, sgp_copies
from simcluster.overlays import (
    AnyOverlay,
    absentees,
    check_not_left_behind,
    everybodys_mean,
    mix,
    overlay_for,
    squared_distance,
    swap,
)
from simcluster.payload import pack
from simcluster.transport import Transport
from simcluster.workloads import Replica


@Facts(copies=sgp_copies, stays=lambda _: SUMS_STAY)
async def sgp(
    node: Transport,
    replica: Replica,
    *,
    overlay: AnyOverlay = "one_peer_exponential",
    consensus_every: NonNegativeInt = 0,
    output: Literal["local", "mean"] = "local",
) -> None:
    """A gradient at z, a step of x and a push per batch. w is recorded as `push_weight`.

    *consensus_every* so many steps all ranks work out the mean model, to record the squared distance of their own z
    from it; 0: never. *output*: what a rank ends with, its `local` z or the `mean` of all x.

    A rank that is lost leaves the others to go on: its share stays with whoever would have sent it. Without any
    neighbour a rank trains alone; one that could only send raises PeerLost, and so does each where the mean of all is
    needed.
    """
    graph, me = overlay_for(overlay, node.size, node.rng.seed), node.rank
    x, w = replica.restored(x=replica.snapshot(), w=1.0)  # the replica itself holds z
    gone = await absentees(node, graph.neighbours(me))
    out, into = graph.ever(me)

    for step, batch in enumerate(replica.batches(), start=1 + replica.done):
        # Phase 1, compute: the gradient at z.
        loss, gradients = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))

        # Phase 2, step: of x.
        replica.load(x)
        await node.compute(replica.apply, gradients, cost=replica.apply_cost())

        # Phase 3, push: shares of x and w; what cannot be given away is kept.
        to = [rank for rank in graph.receivers(me, step - 1) if rank not in gone]
        sources = [rank for rank in graph.senders(me, step - 1) if rank not in gone]
        p = graph.share(me, step - 1, gone)
        x_share, w_share = [p * tensor for tensor in replica.parameters], p * w
        came = await swap(node, to, sources, f"push/{step}", pack(*x_share, w=w_share))
        gone |= came.losses
        if gone and gone.keys() >= into:
            gone |= await absentees(node, (out | into) - gone.keys())
            check_not_left_behind(gone, out | into)
            if not gone.keys() >= out:
                raise next(reversed(gone.values()))

        # Phase 4, sum, by rank, and correct for what w says.
        kept = 1 + len(came.unsent)
        taken = {me: float(kept), **dict.fromkeys(came.messages, 1.0)}
        x = mix(taken, {me: x_share, **{rank: message.tensors for rank, message in came.messages.items()}})
        w = sum(taken[rank] * (w_share if rank == me else came.messages[rank]["w"]) for rank in sorted(taken))
        replica.load([tensor / w for tensor in x])

        # Phase 5, look: how far this rank is from the mean of all.
        look = {}
        if consensus_every and step % consensus_every == 0:
            mean = await everybodys_mean(node, x, f"consensus/{step}", gone)
            look = {"consensus": squared_distance(replica.parameters, mean)}
        node.record(step=step, loss=loss, push_weight=w, **look)
        await replica.checkpoint(step, x=x, w=w)

    if output == "mean":
        mean = await everybodys_mean(node, x, "output", gone)
        node.record(step=replica.steps, consensus=squared_distance(replica.parameters, mean))
        replica.load(mean)
