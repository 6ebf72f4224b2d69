"""CHOCO-SGD: gossip that reaches consensus although it sends only compressed differences.

Koloskova, Stich and Jaggi 2019 (ICML), algorithm 2. Each rank j and its neighbours hold the same copy x^_j, which lags
behind x_j. A rank sends q_i = Q(x_i - x^_i), advances all copies of x_i by it, and averages copies: x_i <- x_i + gamma
sum_j w_ij (x^_j - x^_i). What Q leaves out remains in the next difference, and the mean of all x is preserved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from annotated_types import Gt, Le
from pydantic import NonNegativeInt
from torch import Tensor

from simcluster.algorithms.facts import Facts, by_samples, never
from simcluster.algorithms.gossip.gossip_copies import choco_sgd_copies
from simcluster.algorithms.steps import resumable, steps
from simcluster.compression import Codec, Compression, compressor
from simcluster.overlays import FixedOverlay, Neighbourhood, overlay_for, unfixed
from simcluster.payload import pack
from simcluster.transport import Transport
from simcluster.workloads import Replica
from simcluster.workloads.shares import weighed


@Facts(
    copies=choco_sgd_copies, stays=lambda _: "every rank holds copies of its neighbours' weights", evenly=by_samples,
    float64=never,
)  # fmt: skip
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
    """Train with one gradient, one step and one exchange of compressed differences per batch.

    *compression*: Q, without its error feedback, which the differences provide already. *gamma*:
    the step size of the averaging; 1 without compression gives D-PSGD. The more Q leaves out, the
    smaller *gamma* must be, or training diverges. *consensus_every*: the number of steps between
    computations of the uncompressed mean model, to record the squared distance from that mean; 0
    for never. *output*: the final model, either the rank's `local` model or the `mean` of all.

    Copies start as the initial weights, which are equal on all ranks. On symmetric overlays ranks survive the loss of a
    neighbour, as in `d_psgd`.
    """
    graph, me = overlay_for(overlay, node.size, node.rng.seed, unfixed), node.rank
    if (kind := compressor(compression)) is not None and kind.feeds_back:
        kind = kind.model_copy(update={"error_feedback": False})
    codec = Codec(kind, node.rng, "difference", replica.parameters)
    state = resumable(replica, copies={rank: replica.snapshot() for rank in (me, *graph.senders(me))}, codec=codec)
    bears_losses = graph.symmetric and output == "local" and not consensus_every
    neighbours = await Neighbourhood.meet(node, graph, bears_losses=bears_losses)

    async for step, batch in steps(replica, keep=state):
        # Phase 1, compute and step.
        loss, gradients = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))
        await node.compute(replica.apply, weighed(replica, gradients), cost=replica.apply_cost())

        # Phase 2, send the difference between x and its copies, compressed.
        difference = [mine - copy for mine, copy in zip(replica.parameters, state.copies[me], strict=True)]
        q = await state.codec.compress(node, difference)
        came = await neighbours.swap(step, "difference", pack(*q))

        # Phase 3, advance all copies, this rank's own included.
        for rank, parts in came.by_rank(me, q).items():
            moved = await state.codec.restore(node, parts)
            state.copies[rank] = [copy + part for copy, part in zip(state.copies[rank], moved, strict=True)]

        # Phase 4, average the copies.
        replica.load(_averaged(replica.parameters, state.copies, me, graph.weights(me, lost=neighbours.gone), gamma))

        # Phase 5, measure: the distance from the mean of all.
        node.record(step=step, loss=loss, **await neighbours.consensus(step, consensus_every, replica))

    if output == "mean":
        await neighbours.end_with_mean(replica)


def _averaged(
    x: Sequence[Tensor], copies: Mapping[int, Sequence[Tensor]], me: int, w: Mapping[int, float], gamma: float
) -> list[Tensor]:
    """Return x_i + gamma sum_j w_ij (x^_j - x^_i)."""
    total = [tensor.clone() for tensor in x]
    for rank, weight in w.items():
        if rank != me:
            for into, theirs, mine in zip(total, copies[rank], copies[me], strict=True):
                into.add_(theirs - mine, alpha=gamma * weight)
    return total
