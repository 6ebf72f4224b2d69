"""DeMo: every rank keeps its own momentum and shares only its largest components.

Peng, Quesnelle and Kingma 2024, algorithm 1. The momentum is split into chunks and each chunk is
transformed (DCT-II). Its k largest coefficients are taken out of the momentum and sent to all
ranks. Every rank steps along their sum, or along its signs. Algorithm 1 chunks each tensor; here
the chunks run through all parameters, end to end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from annotated_types import Ge, Lt
from pydantic import PositiveInt
from torch import Tensor

from simcluster.algorithms.facts import Facts, by_samples
from simcluster.algorithms.local_steps.local_step_copies import demo_copies
from simcluster.algorithms.steps import resumable, steps
from simcluster.algorithms.timed import timed
from simcluster.collectives import flatten, unflatten
from simcluster.compression.mean import swap
from simcluster.transport import Transport
from simcluster.workloads import Replica
from simcluster.workloads.shares import weighed


@Facts(copies=demo_copies, in_step=True, evenly=by_samples)
async def demo(
    node: Transport,
    replica: Replica,
    *,
    momentum: Annotated[float, Ge(0), Lt(1)] = 0.999,
    chunk: PositiveInt = 64,
    top_k: PositiveInt = 8,
    update: Literal["sign", "mean"] = "sign",
) -> None:
    """Train with one all-to-all exchange and one step of the workload's optimizer per batch; use
    plain SGD.

    *momentum*: the decay beta. *chunk*: the number of elements per chunk (s). *top_k*: the number
    of coefficients shared per chunk (k); all if a chunk has fewer. *update*: step along the signs
    of the shared components, or along their mean.
    """
    state = resumable(replica, m=torch.zeros_like(flatten(replica.parameters)))
    transform = _dct(chunk, state.m)

    async for step, batch in steps(replica, keep=state):
        # Phase 1, compute: the gradient of this rank's batch.
        loss, gradients = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))

        # Phase 2, extract: m <- beta m + gradient, then take q, the fast components, out of m.
        state.m, values, places = await timed(
            node, _extract, state.m, weighed(replica, gradients), momentum, transform, min(top_k, chunk)
        )

        # Phase 3, exchange: each rank's q with all others, in compressed form.
        shared = await swap(node, [(values, places)] * node.size, f"q/{step}")

        # Phase 4, apply: Q, summed in rank order, bit-identical on all ranks.
        Q = await timed(node, _combine, shared, transform, len(state.m), update == "sign")
        await node.compute(replica.apply, unflatten(Q, gradients), cost=replica.apply_cost())
        node.record(step=step, loss=loss)


def _dct(size: int, like: Tensor) -> Tensor:
    """Return the orthogonal matrix of the DCT-II: its rows are cosines of rising frequency."""
    n = torch.arange(size, dtype=like.dtype, device=like.device)
    rows = torch.cos(math.pi / size * torch.outer(n, n + 0.5)) * math.sqrt(2 / size)
    rows[0] /= math.sqrt(2)
    return rows


def _extract(
    m: Tensor, gradients: Sequence[Tensor], beta: float, transform: Tensor, k: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return (momentum without q, coefficients of q, their indices in each chunk, in the smallest
    sufficient integer type).
    """
    m = beta * m + flatten(gradients)
    chunks = torch.nn.functional.pad(m, (0, -len(m) % len(transform))).view(-1, len(transform))
    coefficients = chunks @ transform.T
    places = coefficients.abs().topk(k).indices
    values = coefficients.gather(1, places)
    q = torch.zeros_like(coefficients).scatter(1, places, values) @ transform
    small = torch.uint8 if len(transform) <= 256 else torch.int16 if len(transform) <= 2**15 else torch.int32
    return m - q.view(-1)[: len(m)], values, places.to(small)


def _combine(shared: Sequence[Sequence[Tensor]], transform: Tensor, length: int, sign: bool) -> Tensor:
    """Return Q: the mean of all ranks' q, or its signs."""
    chunks, size = len(shared[0][0]), len(transform)
    total = shared[0][0].new_zeros(chunks, size)
    for values, places in shared:
        total = total + torch.zeros_like(total).scatter(1, places.long(), values)
    Q = (total / len(shared) @ transform).view(-1)[:length]
    return Q.sign() if sign else Q
