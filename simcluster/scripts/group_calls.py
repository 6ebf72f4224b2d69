"""Make a script's calls on the cluster, with the library's own collectives."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from simcluster import collectives
from simcluster.collectives.gloo_pair import gather_in_pair
from simcluster.scripts.messages import CallIssued
from simcluster.transport import ANY, Transport

OWN, GLOO = "own", "gloo"
"""The schedules that calls can use: the library's own, or those of gloo."""

POINT_TO_POINT = ("send", "recv")
_SUMS = ("sum", "avg")
_ELEMENTWISE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "product": torch.mul,
    "min": torch.minimum,
    "max": torch.maximum,
    "band": torch.bitwise_and,
    "bor": torch.bitwise_or,
    "bxor": torch.bitwise_xor,
}


class ClusterCall(NamedTuple):
    """The call *asked*, to be made in *group* under *tag*: it reads *inputs* and writes its results
    to *outputs*.

    *schedules* is OWN or GLOO. A send that may outlast the call becomes a task in *sends*.
    """

    group: Transport
    asked: CallIssued
    tag: str
    inputs: list[Tensor]
    outputs: list[Tensor]
    schedules: str
    sends: set[asyncio.Task[None]]


async def make_call(call: ClusterCall) -> int:
    """Make *call*. Return the rank that sent the message if the call receives one, otherwise -1."""
    group, asked, tag, inputs, outputs, *_ = call
    source = -1
    results: list[Tensor | None] = []
    match asked.operation:
        case "all_reduce" | "reduce":
            results += [await _reduced(call, place) for place in range(len(inputs))]
        case "broadcast":
            results += await collectives.broadcast(group, inputs, tag, asked.root)
        case "all_gather":
            if call.schedules == GLOO and group.size == 2:
                results += await gather_in_pair(group, inputs[0], tag, call.sends)
            else:
                results += await collectives.all_gather(group, inputs[0], tag)
        case "gather":
            results += await collectives.gather(group, inputs[0], tag, asked.root)
        case "scatter":
            results += [await collectives.scatter(group, inputs, tag, asked.root)]
        case "reduce_scatter":
            results += [await _reduced_part(call)]
        case "all_to_all":
            results += await collectives.all_to_all(group, inputs, tag)
        case "barrier":
            await collectives.barrier(group, tag)
        case "send":
            await group.send(asked.peer, tag, inputs)
        case "recv":
            message = await group.recv(asked.peer if asked.peer >= 0 else ANY, tag)
            source, results = message.source, [*message.tensors]
    for out, value in zip(outputs, results, strict=True):
        if value is not None:
            out.copy_(value.view(out.shape))
    return source


async def _reduced(call: ClusterCall, place: int) -> Tensor | None:
    """Return the reduction over all ranks of the input with index *place*; None if only another
    rank gets it.
    """
    tensor = call.inputs[place]
    tag = f"{call.tag}/{place}"
    reduction = call.asked.reduction
    if call.asked.operation == "all_reduce":
        return await _reduced_everywhere(call.group, tensor, tag, reduction)
    if reduction in _SUMS:
        total = await collectives.reduce(call.group, tensor, tag, call.asked.root)
        return total / call.group.size if total is not None and reduction == "avg" else total
    everyones = await collectives.gather(call.group, tensor, tag, call.asked.root)
    return functools.reduce(_ELEMENTWISE[reduction], everyones) if everyones else None


async def _reduced_everywhere(group: Transport, tensor: Tensor, tag: str, reduction: str) -> Tensor:
    """Return the reduction of all ranks' *tensor*, which every rank gets.

    A sum or mean goes through a ring. For any other reduction, each rank reduces one part, and then
    all ranks gather the parts; this moves as many bytes as the ring.
    """
    if reduction in _SUMS:
        return await collectives.all_reduce(group, tensor, tag, divisor=group.size if reduction == "avg" else 1)
    own_parts = [part.clone() for part in tensor.reshape(-1).tensor_split(group.size)]
    parts = await collectives.all_to_all(group, own_parts, f"{tag}/a")
    own = functools.reduce(_ELEMENTWISE[reduction], parts)
    return torch.cat(await collectives.all_gather(group, own, f"{tag}/b")).view(tensor.shape)


async def _reduced_part(call: ClusterCall) -> Tensor:
    """Return this rank's part of the reduction of all ranks' inputs."""
    reduction = call.asked.reduction
    sizes = {tensor.numel() for tensor in call.inputs}
    if call.schedules == GLOO:
        # Gloo has no reduce-scatter, so torch reduces all parts on every rank, which moves twice as
        # many bytes.
        whole = torch.cat([tensor.reshape(-1) for tensor in call.inputs])
        reduced = await _reduced_everywhere(call.group, whole, call.tag, reduction)
        return torch.split(reduced, [tensor.numel() for tensor in call.inputs])[call.group.rank]
    if reduction in _SUMS and len(sizes) == 1:
        joined = torch.cat([tensor.reshape(-1) for tensor in call.inputs])
        own = await collectives.reduce_scatter(call.group, joined, call.tag)
    else:
        parts = await collectives.all_to_all(call.group, call.inputs, call.tag)
        own = functools.reduce(_ELEMENTWISE.get(reduction, torch.add), parts)
    return own / call.group.size if reduction == "avg" else own
