"""CHOCO-SGD: gossip of which only compressed differences travel, and which still ends in consensus.

Koloskova, Stich and Jaggi 2019 (ICML), algorithm 2. Of every rank j its neighbours and itself hold the same copy x^_j,
which lags behind x_j. A rank sends q_i = Q(x_i - x^_i), by which all copies of x_i move on, and averages copies: x_i <-
x_i + gamma sum_j w_ij (x^_j - x^_i). What Q leaves out is still in the next difference, and the mean of all x is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from annotated_types import Gt, Le
from pydantic import NonNegativeInt
from torch import Tensor

from simcluster.algorithms.facts import Facts
from simcluster.algorithms.gossip.facts import choco_sgd_copies
from simcluster.algorithms.steps import resumable, steps
from simcluster.compression import Codec, Compression, Compressor, compressor
from simcluster.overlays import FixedOverlay, Neighbourhood, overlay_for, unfixed
from simcluster.payload import pack
from simcluster.transport import Transport
from simcluster.workloads import Replica


@Facts(copies=choco_sgd_copies, stays=lambda _: "every rank holds copies of its neighbours' weights")
async def choco_sgd(
    node: Transport,
    replica: Replica,
    *,
    overlay: FixedOverlay = "ring",
    compression: Compression = "none",
    gamma: Annotated[float, Gt(0), Le(1)] = 1.0,
    consensus_every: NonNegativeInt = 0,
    output: Literal["local", "mean"] = "local",
) -> None:
    """A gradient, a step and a round of compressed differences per batch.

    *compression*: Q; its own error feedback is not used, since differences are one. *gamma*: how far copies are
    averaged, 1 to be D-PSGD where nothing is compressed, less the more Q leaves out, or it diverges. *consensus_every*
    so many steps all ranks work out the mean model, uncompressed, to record the squared distance of their own from it;
    0: never. *output*: what a rank ends with, its `local` model or the `mean` of all.

    Copies begin as the initial weights, which all ranks drew alike. Where edges go both ways, a neighbour that is lost
    leaves the others to go on, as in `d_psgd`.
    """
    graph, me = overlay_for(overlay, node.size, node.rng.seed, unfixed), node.rank
    codec = Codec(_without_feedback(compressor(compression)), node.rng, "difference", replica.parameters)
    copies = {rank: replica.snapshot() for rank in (me, *graph.senders(me))}  # x^
    state = resumable(replica, copies=copies, codec=codec)
    neighbours = await Neighbourhood.meet(node, graph, bears_losses=graph.symmetric)

    async for step, batch in steps(replica, keep=state):
        # Phase 1, compute and step.
        loss, gradients = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))
        await node.compute(replica.apply, gradients, cost=replica.apply_cost())

        # Phase 2, send the difference of x from its copies, small.
        difference = [mine - copy for mine, copy in zip(replica.parameters, state.copies[me], strict=True)]
        q = await state.codec.compress(node, difference)
        came = await neighbours.swap(step, "difference", pack(*q))

        # Phase 3, all copies of a rank move on alike, its own too.
        for rank, parts in came.by_rank(me, q).items():
            moved = await state.codec.restore(node, parts)
            state.copies[rank] = [copy + part for copy, part in zip(state.copies[rank], moved, strict=True)]

        # Phase 4, average copies.
        w = graph.weights(me, lost=neighbours.gone)
        replica.load(_averaged(replica.parameters, state.copies, me, w, gamma))

        # Phase 5, look: how far this rank is from the mean of all.
        node.record(step=step, loss=loss, **await neighbours.consensus(step, consensus_every, replica))

    if output == "mean":
        await neighbours.end_with_mean(replica)


def _averaged(
    x: Sequence[Tensor], copies: Mapping[int, Sequence[Tensor]], me: int, w: Mapping[int, float], gamma: float
) -> list[Tensor]:
    """x_i + gamma sum_j w_ij (x^_j - x^_i)."""
    total = [tensor.clone() for tensor in x]
    for rank, weight in w.items():
        if rank != me:
            for into, theirs, mine in zip(total, copies[rank], copies[me], strict=True):
                into.add_(theirs - mine, alpha=gamma * weight)
    return total


def _without_feedback(kind: Compressor | None) -> Compressor | None:
    return kind.model_copy(update={"error_feedback": False}) if kind is not None and kind.feeds_back else kind
