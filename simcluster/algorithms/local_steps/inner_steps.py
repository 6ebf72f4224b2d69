"""The batches between two synchronisations: steps of a replica's own optimizer, alone, or none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from simcluster.transport import Transport
from simcluster.workloads import Batch, Replica


async def inner_steps(
    node: Transport, replica: Replica, batches: Iterator[Batch], step: int, count: int
) -> tuple[int, float]:
    """Take *count* steps after *step*, fewer if the batches end before. Return (last step, mean loss of them)."""
    last = min(step + count, replica.steps)
    return last, await train_alone(node, replica, islice(batches, last - step))


async def train_alone(node: Transport, replica: Replica, batches: Iterable[Batch]) -> float:
    """Take a step of the replica's own optimizer per batch. Return the mean loss.

    Nothing is recorded here: a run judges rank 0's weights where it records, and within a round they are its own alone.
    """
    total, count = 0.0, 0
    for batch in batches:
        loss, gradients = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))
        await node.compute(replica.apply, gradients, cost=replica.apply_cost())
        total, count = total + loss, count + 1
    return total / count


def let_pass(replica: Replica, batches: Iterable[Batch]) -> None:
    """Draw *batches* and use none of them."""
    for _ in batches:
        pass
    replica.ledger.settle(replica.ledger.drawn, used=False)
