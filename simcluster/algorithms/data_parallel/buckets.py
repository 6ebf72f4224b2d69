"""Gradients that leave in buckets, the last layers' first, while the backward pass continues to earlier layers.

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
"""(bucket number, its gradients in the order of its places) -> a future of their mean over ranks."""


@dataclass
class Bucket:
    """*places*: its parameters' places in `Replica.parameters`. *layers*: the layers to pass backward to fill it.

    A bucket without layers is the whole model, and its gradient one piece of work.
    """

    places: list[int] = field(default_factory=list)
    layers: list[int] = field(default_factory=list)


def cut_into_buckets(replica: Replica, bucket_bytes: int | None) -> list[Bucket]:
    """Return the buckets in the order in which they fill; a layer that brings one to *bucket_bytes* ends it.

    A parameter shared by several layers is complete with the first of them. None: one bucket, filled at once.
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
    if not buckets[-1].places:  # the first layers have no parameters, but must still be passed
        buckets[-2].layers += buckets.pop().layers
    return buckets


def in_order(buckets: Sequence[Bucket], parts: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """Return *parts*, the tensors of each bucket, in the order of the replica's parameters."""
    places = chain.from_iterable(bucket.places for bucket in buckets)
    found = dict(zip(places, chain.from_iterable(parts), strict=True))
    return [found[place] for place in sorted(found)]


async def mean_gradient(
    node: Transport, replica: Replica, batches: Sequence[Batch], buckets: Sequence[Bucket], leave: Leave
) -> tuple[float, list[Reducing]]:
    """Return the mean loss of *batches* and, per bucket, the result of *leave*, which is called with the mean gradient
    of all batches, weighed by their samples, during the last backward pass.
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
    """Continue from the gradient *passing* between layers, and add up *gradients_of* parameters by place."""
    layers = replica.layers()
    for number in numbers:
        passing["gradient"], gradients = layers[number].backward(passing["gradient"])
        for place, gradient in zip(layers[number].parameters, gradients, strict=True):
            known = gradients_of.get(place)
            gradients_of[place] = gradient if known is None else known.add_(gradient)
