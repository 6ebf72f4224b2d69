"""The measuring program: every node runs it, in place of an algorithm, on any backend.

This file knows messages, work and the run's clock. It must not know topologies, nor what is concluded from samples.

The nodes take turns, by rank, so that no measurement meets another one's traffic: whose turn it is measures with each
other node, and everyone answers what it is asked. What both ends see alike is measured from the lower rank only. At the
end all nodes do the workload's work at the same time, as in training.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import torch
from torch import Tensor

from simcluster.calibrate.samples import (
    BOTH,
    BURST,
    BURST_MESSAGES,
    FILL,
    ROUND,
    SENDS,
    STREAM,
    STREAM_MESSAGES,
    pair_name,
    work_name,
)
from simcluster.collectives.exchange import exchange
from simcluster.experiment.node import prepare as prepare_experiment
from simcluster.experiment.read import Experiment, read_experiment
from simcluster.payload import pack
from simcluster.results.record import NodeRecord, Recorder
from simcluster.transport import ANY, Cost, Transport

SIZES = (0, 1024, 4 * 1024, 16 * 1024, 64 * 1024, 256 * 1024, 1024**2, 4 * 1024**2)
ROUND_S = 0.25
"""Sizes whose round would take longer than this are left out: on slow links the smaller ones tell enough."""

REPEATS, LONG_REPEATS, FILL_REPEATS, WORK_REPEATS = 9, 5, 1, 30
WARM_UP = 2
"""Repetitions that are not noted: caches fill, TCP finds its window."""

END = "end"


def prepare(config_json: str) -> None:
    """Reads the workload before the clock starts."""
    prepare_experiment(json.dumps(json.loads(config_json)["experiment"]))


async def measure(node: Transport, recorder: Recorder, config_json: str) -> NodeRecord:
    """Measures as *config_json* says: {"experiment": ..., "work": whether to measure work, too}."""
    config = json.loads(config_json)
    meter = _Meter(node, recorder)
    await meter.links()
    if config["work"]:
        await meter.work(read_experiment(config["experiment"]))
    return recorder.finish(None)


class _Meter:
    """Takes samples at one node and notes them in its record."""

    def __init__(self, node: Transport, recorder: Recorder) -> None:
        self.node, self.recorder = node, recorder
        self._repeat_number = 0  # below 0 while warming up
        self._largest: dict[int, int] = {}  # bytes, by the peer's rank: as much as goes in a short while

    async def links(self) -> None:
        """All pairs, one after the other; returns when the last one is done."""
        node = self.node
        if node.size == 1:
            return
        answering = asyncio.create_task(self._answer())
        if node.rank > 0:
            await node.recv(node.rank - 1, "turn")
        for peer in range(node.size):
            if peer != node.rank:
                await self._repeat(REPEATS, BURST, peer, 0, self._burst)
            if peer > node.rank:
                await self._way(peer)
            if peer != node.rank:
                await self._repeat(FILL_REPEATS, FILL, peer, self._largest[peer], self._fill)
        if node.rank < node.size - 1:
            await node.send(node.rank + 1, "turn", None)
        else:
            for rank in range(node.size - 1):
                await node.send(rank, "ask", {"what": END})
            answering.cancel()
        await asyncio.wait([answering])
        if not answering.cancelled():
            answering.result()

    async def work(self, experiment: Experiment) -> None:
        """Gradients and steps of the workload, by what an algorithm would wait for them."""
        node = self.node
        repeats = WARM_UP + WORK_REPEATS
        replica = experiment.workload.replica(node.rank, node.size, experiment.seed, steps=repeats)
        for self._repeat_number, batch in enumerate(replica.batches(), start=-WARM_UP):
            cost, apply_cost = replica.gradient_cost(batch), replica.apply_cost()
            _, gradients = await self._piece(cost, replica.loss_and_gradients, batch)
            await self._piece(apply_cost, replica.apply, gradients)

    # one pair

    async def _way(self, peer: int) -> None:
        largest, longest_s = 0, 0.0
        for size_bytes in SIZES:
            if size_bytes > largest > 0 and longest_s * size_bytes / largest > ROUND_S:
                break
            longest_s = await self._repeat(REPEATS, ROUND, peer, size_bytes, self._round)
            largest = self._largest[peer] = size_bytes
        await self._repeat(LONG_REPEATS, STREAM, peer, largest, self._stream)
        await self._repeat(LONG_REPEATS, BOTH, peer, largest, self._both)

    async def _repeat(
        self, repeats: int, what: str, peer: int, size_bytes: int, take: Callable[[int, Tensor], Awaitable[float]]
    ) -> float:
        """Notes *repeats* samples; returns the last one."""
        body = torch.zeros(size_bytes, dtype=torch.uint8)
        seconds = 0.0
        for self._repeat_number in range(-WARM_UP, repeats):
            seconds = await take(peer, body)
            self._note(pair_name(what, peer, size_bytes), seconds)
        return seconds

    async def _round(self, peer: int, body: Tensor) -> float:
        start_s = self.recorder.now()
        await self.node.send(peer, "ask", pack(body, what=ROUND))
        await self.node.recv(peer, "answer")
        return self.recorder.now() - start_s

    async def _stream(self, peer: int, body: Tensor) -> float:
        start_s = self.recorder.now()
        await self._fill(peer, body)
        return self.recorder.now() - start_s

    async def _fill(self, peer: int, body: Tensor) -> float:
        start_s = self.recorder.now()
        for left in reversed(range(STREAM_MESSAGES)):
            await self.node.send(peer, "ask", pack(body, what=STREAM, left=left))
        sent_s = self.recorder.now()
        await self.node.recv(peer, "answer")
        return sent_s - start_s

    async def _both(self, peer: int, body: Tensor) -> float:
        await self.node.send(peer, "ask", pack(what=BOTH, size_bytes=len(body)))
        start_s = self.recorder.now()
        await exchange(self.node, peer, peer, BOTH, body)
        await self.node.recv(peer, "answer")
        return self.recorder.now() - start_s

    async def _burst(self, peer: int, body: Tensor) -> float:
        start_s = self.recorder.now()
        for left in reversed(range(BURST_MESSAGES)):
            await self.node.send(peer, "ask", pack(body, what=STREAM, left=left))
        sent_s = self.recorder.now()
        await self.node.recv(peer, "answer")
        self._note(pair_name(SENDS, peer, len(body)), sent_s - start_s)
        return self.recorder.now() - start_s

    async def _answer(self) -> None:
        """Does what the others ask, until one says that it is over."""
        node = self.node
        while True:
            ask = await node.recv(ANY, "ask")
            match ask["what"]:
                case "round":
                    self._largest[ask.source] = max(self._largest.get(ask.source, 0), len(ask.tensor))
                    await node.send(ask.source, "answer", ask.tensor)
                case "stream" if ask["left"] == 0:
                    await node.send(ask.source, "answer", None)
                case "both":
                    body = torch.zeros(ask["size_bytes"], dtype=torch.uint8)
                    await exchange(node, ask.source, ask.source, BOTH, body)
                    await node.send(ask.source, "answer", None)
                case "end":
                    return

    async def _piece(self, cost: Cost, work: Callable[..., Any], *args: Any) -> Any:
        start_s = self.recorder.now()
        result = await self.node.compute(work, *args, cost=cost)
        self._note(work_name(cost.kind, cost.flops), self.recorder.now() - start_s)
        return result

    def _note(self, name: str, seconds: float) -> None:
        if self._repeat_number >= 0:
            self.recorder.metric_at(self.recorder.now(), self._repeat_number, name, seconds)
