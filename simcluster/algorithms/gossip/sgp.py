"""Stochastic gradient push: gossip over directed edges, where a rank cannot know with what weight
others use its messages.

Assran et al. 2019 (ICML), algorithm 1. A rank splits its weights x_i and a number w_i, initially 1, into equal shares
for itself and its receivers. The columns of P therefore sum to 1, and the sums of x and w over all ranks are preserved.
Rows need not sum to 1: any excess or deficit affects x_i and w_i alike, so z_i = x_i / w_i is correct.
"""

from __future__ import annotations

from typing import Literal

from pydantic import NonNegativeInt

from simcluster.algorithms.facts import Facts, by_samples
from simcluster.algorithms.gossip.gossip_copies import SUMS_STAY, sgp_copies
from simcluster.algorithms.steps import resumable, steps
from simcluster.overlays import AnyOverlay, Neighbourhood, mix, overlay_for
from simcluster.payload import pack
from simcluster.transport import Transport
from simcluster.workloads import Replica
from simcluster.workloads.shares import weighed


@Facts(copies=sgp_copies, stays=lambda _: SUMS_STAY, evenly=by_samples)
async def sgp(
    node: Transport,
    replica: Replica,
    *,
    overlay: AnyOverlay = "one_peer_exponential",
    consensus_every: NonNegativeInt = 0,
    output: Literal["local", "mean"] = "local",
) -> None:
    """Train with one gradient at z, one step of x and one push per batch. w is recorded as
    `push_weight`.

    *consensus_every*: the number of steps between computations of the mean model, to record the
    squared distance of z from that mean; 0 for never. *output*: the final model, either the rank's
    `local` z or the `mean` of all x.

    Ranks survive the loss of another rank: its senders keep its share. A rank without neighbours
    trains alone. A rank that has lost all its senders but not all its receivers raises PeerLost;
    with the `mean` of all, so does every rank.
    """
    graph, me = overlay_for(overlay, node.size, node.rng.seed), node.rank
    state = resumable(replica, x=replica.snapshot(), w=1.0)  # the replica itself holds z
    neighbours = await Neighbourhood.meet(node, graph, bears_losses=output == "local" and not consensus_every)

    async for step, batch in steps(replica, keep=state):
        # Phase 1, compute: the gradient at z.
        loss, gradients = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))

        # Phase 2, step: x moves.
        replica.load(state.x)
        await node.compute(replica.apply, weighed(replica, gradients), cost=replica.apply_cost())

        # Phase 3, push: send shares of x and w; undeliverable ones are kept.
        p = graph.share(me, step - 1, neighbours.gone)
        x, w = [p * tensor for tensor in replica.parameters], p * state.w
        came = await neighbours.swap(step, "push", pack(*x, w=w))

        # Phase 4, sum in rank order, and correct by w.
        taken = {me: 1.0 + len(came.unsent), **dict.fromkeys(came.messages, 1.0)}
        state.x = mix(taken, came.by_rank(me, x))
        state.w = sum(taken[rank] * (w if rank == me else came.messages[rank]["w"]) for rank in sorted(taken))
        replica.load([tensor / state.w for tensor in state.x])

        # Phase 5, measure: the distance of this rank's z from the mean of all x.
        look = await neighbours.consensus(step, consensus_every, replica, state.x)
        node.record(step=step, loss=loss, push_weight=state.w, **look)

    if output == "mean":
        await neighbours.end_with_mean(replica, state.x)
