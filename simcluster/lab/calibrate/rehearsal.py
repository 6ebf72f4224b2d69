"""Rehearsed training steps: all nodes compute gradients, exchange them and apply them.

The measuring program rehearses on the real nodes; later the same coroutine runs in the simulator
with the fitted numbers. The difference between the two times is the error of the fit.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from simcluster.collectives.exchange import exchange
from simcluster.lab.calibrate.samples import STEP, SWAP, sample_name
from simcluster.payload import pack
from simcluster.runs.record import NodeRecord
from simcluster.runs.recorder import Recorder
from simcluster.transport import Cost, Transport

RING, STAR = "ring", "star"
READY, GO = "rehearse?", "rehearse"

MOST_STEPS, REHEARSED_S = 40, 0.5
"""Limits on a rehearsal: the number of steps in a row, and the total time of their messages."""


def pattern_of(number: int) -> str:
    """Return the pattern of round *number*: rounds alternate between the two patterns."""
    return (RING, STAR)[number % 2]


async def run(node: Transport, recorder: Recorder, config_json: str) -> NodeRecord:
    """Rehearse on a simulated node, and record the times as a real rehearsal does.

    *config_json* is {"pattern": ..., "steps": N, "work": [[kind, FLOPs], ...] by rank, "sizes":
    {peer: bytes} by rank}.
    """
    config = json.loads(config_json)
    pieces = iter([Cost(flops, kind=kind) for kind, flops in config["work"][node.rank]])
    sizes = {int(peer): size for peer, size in config["sizes"][node.rank].items()}

    async def work(*_: Any) -> None:
        if (cost := next(pieces, None)) is not None:
            await node.compute(int, cost=cost)

    pattern = config["pattern"]
    swap_s, step_s, _ = await rehearse(node, recorder.now, pattern, sizes, work, work, config["steps"])
    for what, seconds in ((SWAP, swap_s), (STEP, step_s)):
        recorder.metric_at(recorder.now(), 0, sample_name(what, pattern, 0), seconds)
    return recorder.finish(None)


async def rehearse(
    node: Transport,
    now: Callable[[], float],
    pattern: str,
    sizes: Mapping[int, int],
    gradient: Callable[[], Awaitable[Any]],
    apply: Callable[[Any], Awaitable[Any]],
    steps: int | None = None,
    spent: Callable[[], float] = float,
) -> tuple[float, float, float]:
    """Exchange messages once, then take *steps* training steps in a row.

    Return the seconds of the exchange, the mean seconds of a step, and the mean CPU seconds of a
    step's messages by the clock *spent*. *sizes* maps each peer to the bytes for it: a star sends
    them in one message, a ring in shares. The first exchange stands for the first step of a run,
    where TCP starts slowly on idle connections; the steps stand for later ones. If *steps* is None,
    rank 0 chooses as many steps as fit into REHEARSED_S: nodes that share cores never repeat a step
    exactly, so one step says little about the next.
    """
    await _begin_together(node, 1)
    start_s = now()
    await _swap(node, pattern, sizes)
    swapped_s = now() - start_s
    fitting = max(1, min(MOST_STEPS, int(REHEARSED_S / max(swapped_s, 1e-9))))
    steps = await _begin_together(node, steps or fitting)
    start_s = now()
    handled_s = 0.0
    for _ in range(steps):
        found = await gradient()
        before_s = spent()
        await _swap(node, pattern, sizes, found or ())
        handled_s += spent() - before_s
        await apply(found)
    return swapped_s, (now() - start_s) / steps, handled_s / steps


def messages_of(pattern: str, size: int, size_bytes: int) -> list[tuple[int, int, int, float]]:
    """Return (from, to, count, bytes of each) for the messages of one step.

    *size* nodes exchange *size_bytes*.
    """
    if pattern == RING:
        return [(rank, (rank + 1) % size, 2 * (size - 1), size_bytes // size) for rank in range(size)]
    return [way for rank in range(1, size) for way in ((rank, 0, 1, size_bytes), (0, rank, 1, size_bytes))]


async def _begin_together(node: Transport, steps: int) -> int:
    """Wait until every node has received everything sent to it; return the last rank's *steps*."""
    last = node.size - 1
    if node.rank != last:
        await node.send(last, READY, None)
        return int((await node.recv(last, GO))["steps"])
    for rank in range(last):
        await node.recv(rank, READY)
    for rank in range(last):
        await node.send(rank, GO, pack(steps=steps))
    return steps


async def _swap(node: Transport, pattern: str, sizes: Mapping[int, int], tensors: Sequence[Tensor] = ()) -> None:
    """Exchange *tensors*, or smaller ones over slow links; add or copy each tensor that arrives."""
    if node.size == 1:
        return
    if pattern == RING:
        # As in a ring all-reduce: 2 (size - 1) shares go to the next rank, and the same number
        # comes from the previous.
        after, before = (node.rank + 1) % node.size, (node.rank - 1) % node.size
        share = _body(sizes[after] // node.size)
        for _ in range(2 * (node.size - 1)):
            received = (await exchange(node, after, before, RING, share)).tensor
            received.add(received)
    elif node.rank == 0:
        # As with a parameter server: all send to rank 0, which then sends to all.
        others = range(1, node.size)
        for rank in others:
            for received in (await node.recv(rank, STAR)).tensors:
                received.add(received)
        copies = [tensor.clone() for tensor in tensors]
        await asyncio.gather(*(node.send(rank, STAR, _fitting(copies, sizes[rank])) for rank in others))
    else:
        await node.send(0, STAR, _fitting(tensors, sizes[0]))
        for received in (await node.recv(0, STAR)).tensors:
            received.clone()


def _fitting(tensors: Sequence[Tensor], size_bytes: int) -> Sequence[Tensor]:
    """Return *tensors* if they have *size_bytes*; for a slow link, return one tensor of this size."""
    return tensors if sum(tensor.nbytes for tensor in tensors) == size_bytes else [_body(size_bytes)]


def _body(size_bytes: int) -> Tensor:
    # Not zeros: the kernel may back all zero pages with a single one, which makes reading them too
    # fast.
    return torch.ones(size_bytes, dtype=torch.uint8)
