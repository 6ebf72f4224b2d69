"""A node of a checked run: runs as usual, and counts the messages between it and its algorithm."""

from __future__ import annotations

import random
from typing import Final

import numpy as np
import torch

from simcluster.experiment.node import preloads, prepare, run_node
from simcluster.forwarding import Forwarding
from simcluster.payload import Message, Sendable, as_payload, body_bytes
from simcluster.runs.record import NodeRecord
from simcluster.runs.recorder import Recorder
from simcluster.transport import ANY, Any_, Transport

__all__ = ["DRAWN", "PROGRAM", "TAKEN", "TENSOR_BYTES", "preloads", "prepare", "run_counted"]

PROGRAM: Final = "simcluster.lab.verify.probe:run_counted"

TAKEN: Final = "messages_taken"
"""Metric: messages that the algorithm has received."""
TENSOR_BYTES: Final = "tensor_bytes_sent"
"""Metric: tensor bytes that it has sent."""


DRAWN: Final = ("drawn_from_python", "drawn_from_numpy", "drawn_from_torch")
"""Metrics: numbers that a rank has drawn from the global generators."""


class CountingTransport(Forwarding):
    """Wrap a transport and count its traffic."""

    def __init__(self, node: Transport) -> None:
        super().__init__(node)
        self.taken = self.tensor_bytes = 0

    async def send(self, to: int, tag: str, content: Sendable) -> None:
        size_bytes = body_bytes(as_payload(content))  # measured now: the caller may change it once this waits
        await self._node.send(to, tag, content)
        self.tensor_bytes += size_bytes

    async def recv(self, source: int | Any_ = ANY, tag: str | Any_ = ANY) -> Message:
        message = await self._node.recv(source, tag)
        self.taken += 1
        return message


class DrawingTransport(Forwarding):
    """Wrap a transport and draw from each global generator at every record, as a metric."""

    def record(self, *, step: int, **metrics: float) -> None:
        drawn = float(np.random.standard_normal()), float(torch.randn(()))
        self._node.record(step=step, **metrics, **dict(zip(DRAWN, (random.gauss(0.0, 1.0), *drawn), strict=True)))


async def run_counted(node: Transport, recorder: Recorder, config_json: str) -> NodeRecord:
    """Run the experiment in *config_json*; the record has every rank's weights, and the counts as metrics."""
    counting = CountingTransport(node)
    try:
        return await run_node(counting, recorder, config_json, keep_weights=True, evaluate=False)
    finally:
        for name, count in ((TAKEN, counting.taken), (TENSOR_BYTES, counting.tensor_bytes)):
            recorder.metric_at(recorder.now(), recorder.record.steps, name, count)
