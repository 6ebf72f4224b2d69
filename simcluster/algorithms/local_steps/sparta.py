"""SPARTA: after every step a few coordinates of the weights, different ones each time, are averaged over all ranks.

Sparse parameter averaging (Beton et al. 2025). A common seed draws each coordinate with probability p, so all ranks
average the same ones and no index is sent. After n steps a coordinate has been shared at least once with probability 1
- (1-p)^n; with p = 1 all weights are averaged at every step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import torch
from annotated_types import Gt, Le
from torch import Tensor

from simcluster.algorithms.facts import Facts, by_samples
from simcluster.algorithms.local_steps.local_step_copies import sparta_copies
from simcluster.algorithms.local_steps.rounds import adopt, train_alone
from simcluster.algorithms.steps import steps
from simcluster.algorithms.timed import timed
from simcluster.collectives import flatten, ring_all_reduce
from simcluster.transport import Transport
from simcluster.workloads import Replica
from simcluster.workloads.shares import weighed


@Facts(copies=sparta_copies, in_step=True, evenly=by_samples)
async def sparta(node: Transport, replica: Replica, *, fraction: Annotated[float, Gt(0), Le(1)] = 0.05) -> None:
    """For each batch, take a local optimizer step, then average the share *fraction* (p) of the
    coordinates over all ranks.
    """
    async for step, batch in steps(replica):
        # Phase 1, train: one local step.
        loss = await train_alone(node, replica, [batch])

        # Phase 2, select: the same coordinates on every rank.
        x = await timed(node, flatten, replica.parameters)
        chosen = _coordinates(node, step, x, fraction)

        # Phase 3, average: only those.
        own = await timed(node, torch.take, x, chosen)
        total = await ring_all_reduce(node, *weighed(replica, [own]), f"average/{step}")
        await timed(node, _put, replica.parameters, x, chosen, total, node.size)
        node.record(step=step, loss=loss)


def _coordinates(node: Transport, step: int, x: Tensor, p: float) -> Tensor:
    """Draw each coordinate of *x* with probability *p*; return the drawn coordinates in order.

    Their number is drawn first, so a run without values needs no more than that draw, whatever the
    size of the model.
    """
    common = node.rng.shared("sparta", str(step))
    number = int(common.binomial(len(x), p))
    if x.is_meta:
        return torch.empty(number, dtype=torch.int64, device="meta")
    chosen = common.choice(len(x), number, replace=False)
    return torch.from_numpy(chosen).sort().values.to(x.device)


def _put(parameters: Sequence[Tensor], x: Tensor, chosen: Tensor, total: Tensor, size: int) -> None:
    adopt(parameters, x.index_copy(0, chosen, total / size))
