"""The batches between two synchronisations: local optimizer steps, or skipped batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from simcluster.transport import Transport
from simcluster.workloads import Batch, Replica


async def inner_steps(
    node: Transport, replica: Replica, batches: Iterator[Batch], step: int, count: int
) -> tuple[int, float]:
    """Take *count* steps after *step*, or fewer if the batches run out. Return (last step, their mean loss)."""
    last = min(step + count, replica.steps)
    return last, await train_alone(node, replica, islice(batches, last - step))


async def train_alone(node: Transport, replica: Replica, batches: Iterable[Batch]) -> float:
    """Take one local optimizer step per batch. Return the mean loss.

    Nothing is recorded: that would evaluate rank 0's weights, which are not the shared model within a round.
    """
    total, count = 0.0, 0
    for batch in batches:
        loss, gradients = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))
        await node.compute(replica.apply, gradients, cost=replica.apply_cost())
        total, count = total + loss, count + 1
    return total / count


def let_pass(replica: Replica, batches: Iterable[Batch]) -> None:
    """Draw *batches* without training on them."""
    for _ in batches:
        pass
    replica.ledger.settle(replica.ledger.drawn, used=False)
