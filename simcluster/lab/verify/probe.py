"""The node program of a checked run: it runs the node as usual, and counts the node's messages."""

from __future__ import annotations

import random

import numpy as np
import torch

from simcluster.experiment.node import preloads, prepare, run_node
from simcluster.forwarding import Forwarding
from simcluster.payload import Message, Sendable, as_payload, body_bytes
from simcluster.runs.record import NodeRecord
from simcluster.runs.recorder import Recorder
from simcluster.transport import ANY, Any_, Transport

__all__ = ["DRAWN", "PROGRAM", "TAKEN", "TENSOR_BYTES", "preloads", "prepare", "run_counted"]

PROGRAM = "simcluster.lab.verify.probe:run_counted"

TAKEN = "messages_taken"
"""Name of the metric with the number of messages that the algorithm has received."""
TENSOR_BYTES = "tensor_bytes_sent"
"""Name of the metric with the tensor bytes that the algorithm has sent."""


DRAWN = ("drawn_from_python", "drawn_from_numpy", "drawn_from_torch")
"""Names of the metrics that hold the value a rank drew from each global generator."""


class CountingTransport(Forwarding):
    """Wrap a transport and count its traffic."""

    def __init__(self, node: Transport) -> None:
        super().__init__(node)
        self.taken = self.tensor_bytes = 0

    async def send(self, to: int, tag: str, content: Sendable) -> None:
        # Measure before the await: the caller may change the content meanwhile.
        size_bytes = body_bytes(as_payload(content))
        await self._node.send(to, tag, content)
        self.tensor_bytes += size_bytes

    async def recv(self, source: int | Any_ = ANY, tag: str | Any_ = ANY) -> Message:
        message = await self._node.recv(source, tag)
        self.taken += 1
        return message


class DrawingTransport(Forwarding):
    """Wrap a transport; at every record, draw from each global generator and record the draws."""

    def record(self, *, step: int, **metrics: float) -> None:
        drawn = float(np.random.standard_normal()), float(torch.randn(()))
        self._node.record(step=step, **metrics, **dict(zip(DRAWN, (random.gauss(0.0, 1.0), *drawn), strict=True)))


async def run_counted(node: Transport, recorder: Recorder, config_json: str) -> NodeRecord:
    """Run this node of the experiment *config_json*; record its weights and the counts."""
    counting = CountingTransport(node)
    try:
        return await run_node(counting, recorder, config_json, keep_weights=True, evaluate=False)
    finally:
        for name, count in ((TAKEN, counting.taken), (TENSOR_BYTES, counting.tensor_bytes)):
            recorder.metric_at(recorder.now(), recorder.record.steps, name, count)
