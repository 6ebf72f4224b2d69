"""What a node does in a checked run: what it does in any run, and it counts what passes between it and its algorithm.

This file knows transports and records. It must not know a backend, nor what the counts are held against.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from simcluster.experiment.node import prepare, run_node
from simcluster.payload import Message, Sendable, as_payload, body_bytes
from simcluster.results.record import NodeRecord, Recorder
from simcluster.rng import NodeRandom
from simcluster.transport import ANY, Any_, Cost, Transport

__all__ = ["PROGRAM", "TAKEN", "TENSOR_BYTES", "prepare", "run_counted"]

T = TypeVar("T")

PROGRAM: Final = "simcluster.verify.probe:run_counted"

TAKEN: Final = "messages_taken"
"""The metric that says how many messages the algorithm has received."""
TENSOR_BYTES: Final = "tensor_bytes_sent"
"""The metric that says how many bytes of tensors it has sent."""


class Counting:
    """A transport that counts, and else is the one that it wraps."""

    def __init__(self, node: Transport) -> None:
        self._node = node
        self.taken = self.tensor_bytes = 0

    @property
    def rank(self) -> int:
        return self._node.rank

    @property
    def size(self) -> int:
        return self._node.size

    @property
    def name(self) -> str:
        return self._node.name

    @property
    def rng(self) -> NodeRandom:
        return self._node.rng

    @property
    def peers(self) -> Sequence[int]:
        return self._node.peers

    async def send(self, to: int, tag: str, content: Sendable) -> None:
        size_bytes = body_bytes(as_payload(content))  # now: the caller may change what it sends once this waits
        await self._node.send(to, tag, content)
        self.tensor_bytes += size_bytes

    async def recv(self, source: int | Any_ = ANY, tag: str | Any_ = ANY) -> Message:
        message = await self._node.recv(source, tag)
        self.taken += 1
        return message

    async def compute(self, work: Callable[..., T], *args: Any, cost: Cost, **kwargs: Any) -> T:
        return await self._node.compute(work, *args, cost=cost, **kwargs)

    def record(self, *, step: int, **metrics: float) -> None:
        self._node.record(step=step, **metrics)


async def run_counted(node: Transport, recorder: Recorder, config_json: str) -> NodeRecord:
    """The experiment in *config_json*; the record has the weights of every rank, and the counts as metrics."""
    counting = Counting(node)
    try:
        return await run_node(counting, recorder, config_json, keep_weights=True, evaluate=False)
    finally:
        record = recorder.record
        counts: Mapping[str, float] = {TAKEN: counting.taken, TENSOR_BYTES: counting.tensor_bytes}
        for name, count in counts.items():
            recorder.metric_at(recorder.now(), record.steps, name, count)
