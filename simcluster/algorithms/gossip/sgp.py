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
from simcluster.algorithms.steps import resumable, steps
from simcluster.overlays import AnyOverlay, Neighbourhood, mix, overlay_for
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
    state = resumable(replica, x=replica.snapshot(), w=1.0)  # the replica itself holds z
    neighbours = await Neighbourhood.meet(node, graph)

    async for step, batch in steps(replica, keep=state):
        # Phase 1, compute: the gradient at z.
        loss, gradients = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))

        # Phase 2, step: of x.
        replica.load(state.x)
        await node.compute(replica.apply, gradients, cost=replica.apply_cost())

        # Phase 3, push: shares of x and w; those that cannot be given away are kept.
        p = graph.share(me, step - 1, neighbours.gone)
        x, w = [p * tensor for tensor in replica.parameters], p * state.w
        came = await neighbours.swap(step, "push", pack(*x, w=w))

        # Phase 4, sum, by rank, and correct by w.
        taken = {me: 1.0 + len(came.unsent), **dict.fromkeys(came.messages, 1.0)}
        state.x = mix(taken, came.by_rank(me, x))
        state.w = sum(taken[rank] * (w if rank == me else came.messages[rank]["w"]) for rank in sorted(taken))
        replica.load([tensor / state.w for tensor in state.x])

        # Phase 5, look: how far this rank's z is from the mean of all x.
        look = await neighbours.consensus(step, consensus_every, replica, state.x)
        node.record(step=step, loss=loss, push_weight=state.w, **look)

    if output == "mean":
        await neighbours.end_with_mean(replica, state.x)
