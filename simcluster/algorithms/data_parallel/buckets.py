"""Gradients sent in buckets, the last layers' first, while the backward pass continues to earlier
layers.

Li et al. 2020 (PyTorch Distributed, section 3.2.3): neighbouring parameters travel together, and a bucket leaves as
soon as its last gradient is ready.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain

from torch import Tensor

from simcluster.transport import FREE, Transport
from simcluster.workloads import Batch, Replica
from simcluster.workloads.shares import weighed

Reducing = asyncio.Future[list[Tensor]]
Complete = Callable[[int, list[Tensor]], None]
Leave = Callable[[int, list[Tensor]], Reducing]
"""(number of a bucket, gradients in the order of the bucket's places) -> a future of their mean
over ranks.
"""


@dataclass
class Bucket:
    """Parameters whose gradients are sent together, at indices *places* of `Replica.parameters`.

    The bucket is full after the backward passes of *layers*.

    A bucket without layers holds the whole model; its gradient is computed in one call.
    """

    places: list[int] = field(default_factory=list)
    layers: list[int] = field(default_factory=list)


def cut_into_buckets(replica: Replica, bucket_bytes: int | None) -> list[Bucket]:
    """Return the buckets in the order in which they fill; a bucket ends with the layer that brings
    it to at least *bucket_bytes*.

    The gradient of a parameter shared by several layers is complete once the backward pass has
    reached the first of these layers. If *bucket_bytes* is None, one bucket holds everything and
    fills at once.
    """
    if bucket_bytes is None:
        return [Bucket(list(range(len(replica.shapes))))]
    layers = replica.layers()
    shared = layers.shared()
    buckets, size_bytes = [Bucket()], 0
    for number in reversed(range(len(layers))):
        complete = [place for place in layers[number].parameters if number == min(shared.get(place, [number]))]
        if size_bytes >= bucket_bytes:
            buckets.append(Bucket())
            size_bytes = 0
        buckets[-1].layers.append(number)
        buckets[-1].places += complete
        size_bytes += sum(replica.shapes[place].nbytes for place in complete)
    if not buckets[-1].places:  # the backward pass must still run through first layers without parameters
        buckets[-2].layers += buckets.pop().layers
    return buckets


def in_order(buckets: Sequence[Bucket], parts: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """Return the tensors of *parts*, one sequence per bucket, in the order of the replica's
    parameters.
    """
    places = chain.from_iterable(bucket.places for bucket in buckets)
    found = dict(zip(places, chain.from_iterable(parts), strict=True))
    return [found[place] for place in sorted(found)]


async def mean_gradient(
    node: Transport, replica: Replica, batches: Sequence[Batch], buckets: Sequence[Bucket], leave: Leave
) -> tuple[float, list[Reducing]]:
    """Compute the mean gradient of *batches*, weighted by samples, and call *leave* for each bucket
    as it fills during the last backward pass.

    Return the mean loss, and the futures that *leave* returned.
    """
    losses: list[float] = []
    sums: list[Tensor] = []
    for batch in batches[:-1]:
        loss, gradients = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))
        losses.append(loss)
        sums = [total.add_(more) for total, more in zip(sums, gradients, strict=True)] if sums else gradients
    reducing: list[Reducing] = []

    def complete(number: int, gradients: list[Tensor]) -> None:
        if sums:
            for place, gradient in zip(buckets[number].places, gradients, strict=True):
                gradient.add_(sums[place]).div_(len(batches))
        reducing.append(leave(number, weighed(replica, gradients)))

    losses.append(await _in_buckets(node, replica, batches[-1], buckets, complete))
    return sum(losses) / len(losses), reducing


async def _in_buckets(
    node: Transport, replica: Replica, batch: Batch, buckets: Sequence[Bucket], complete: Complete
) -> float:
    if not buckets[0].layers:
        loss, gradients = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))
        complete(0, gradients)
        return loss
    costs = replica.layer_costs(batch)
    loss = await node.compute(_forward, replica, batch, cost=sum((cost.forward for cost in costs), start=FREE))
    passing: dict[str, Tensor | None] = {"gradient": None}
    gradients_of: dict[int, Tensor] = {}
    for number, bucket in enumerate(buckets):
        cost = sum((costs[layer].backward for layer in bucket.layers), start=FREE)
        await node.compute(_backward, replica, bucket.layers, passing, gradients_of, cost=cost)
        complete(number, [gradients_of.pop(place) for place in bucket.places])
    return loss


def _forward(replica: Replica, batch: Batch) -> float:
    *inner, last = replica.layers()
    value = batch.inputs
    for layer in inner:
        value = layer.forward(value)
    return last.loss(value, batch.targets)


def _backward(
    replica: Replica, numbers: Sequence[int], passing: dict[str, Tensor | None], gradients_of: dict[int, Tensor]
) -> None:
    """Run the backward passes of layers *numbers* from the gradient in *passing*, and store the
    resulting gradient there. Add the parameters' gradients to *gradients_of*, keyed by index in
    `Replica.parameters`.
    """
    layers = replica.layers()
    for number in numbers:
        passing["gradient"], gradients = layers[number].backward(passing["gradient"])
        for place, gradient in zip(layers[number].parameters, gradients, strict=True):
            known = gradients_of.get(place)
            gradients_of[place] = gradient if known is None else known.add_(gradient)
