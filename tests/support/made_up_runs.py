"""Makes run records out of arithmetic, for tests of what is written, drawn and compared after a run.

It plays a parameter server by hand: per step every worker waits for the weights from rank 0, computes and
sends its gradients back. No backend and no torch are involved.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any

from simcluster.errors import PeerLost, RunError
from simcluster.runs.record import RunRecord
from simcluster.runs.recorder import Recorder
from simcluster.runs.trace import description, events

NAMES = ["mini1", "mini2", "mini3", "pi5", "pi4"]
WEIGHTS_BYTES, GRADIENT_BYTES = 200_100, 200_060
WIRE_S = 0.004


def compute_s(rank: int) -> float:
    """The two last nodes are three times slower."""
    return 0.01 if rank < 3 else 0.03


def made_up_config(**changes: Any) -> dict[str, Any]:
    config = {
        "name": "quickstart",
        "backend": "sim",
        "seed": 7,
        "algorithm": {"name": "sync_ps", "pull_interval": 1},
        "topology": topology_document(),
        "workload": {"name": "digits-mlp", "batch_size": 32},
        "stop": {"steps": 50},
        "numerics": "real",
    }
    return {**config, **changes}


def topology_document() -> dict[str, Any]:
    """Three Mac minis in a chain of cables, and two Pis behind a switch."""
    return {
        "name": "smolcluster",
        "nodes": {
            "mini1": {"device": "mac-mini-m4", "compute": "auto"},
            "mini2": {"device": "mac-mini-m4", "compute": "auto"},
            "mini3": {"device": "mac-mini-m4", "compute": "auto"},
            "pi5": {"device": "raspberry-pi-5"},
            "pi4": {"device": "raspberry-pi-4"},
            "sw0": {"kind": "switch"},
        },
        "links": [
            {"between": ["mini1", "mini2"], "bandwidth": "40 Gbps", "latency": "10 us", "duplex": "full"},
            {"between": ["mini2", "mini3"], "bandwidth": "40 Gbps", "latency": "10 us", "duplex": "full"},
            {"between": ["mini1", "sw0"], "bandwidth": "1 Gbps", "latency": "100 us", "duplex": "full"},
            {"between": ["pi5", "sw0"], "bandwidth": "1 Gbps", "latency": "100 us", "duplex": "full"},
            {"between": ["pi4", "sw0"], "bandwidth": "100 Mbps", "latency": "200 us", "duplex": "half"},
        ],
    }


def star_document(nodes: int) -> dict[str, Any]:
    """Half of the nodes in each of two sites, the first of them Mac minis."""
    names = [f"n{index}" for index in range(nodes)]
    return {
        "name": "star",
        "nodes": {
            name: {
                "device": "mac-mini-m4" if index < 3 else "raspberry-pi-5",
                "site": "north" if index < nodes // 2 else "south",
            }
            for index, name in enumerate(names)
        },
        "links": [
            {"between": ["n0", name], "bandwidth": "1 Gbps", "latency": "1 ms", "duplex": "full"} for name in names[1:]
        ],
    }


def made_up_run(
    steps: int = 50,
    names: list[str] | None = None,
    *,
    stretch: float = 1.0,
    weights: str = "same",
    fail_at_step: int | None = None,
    staleness: bool = False,
) -> RunRecord:
    """A synchronous run of *steps* steps; *stretch* multiplies all times; *weights* names the weights."""
    names = names or NAMES
    clock = [0.0]
    recorders = [Recorder(rank, name, lambda: clock[0]) for rank, name in enumerate(names)]
    start_s = 0.0
    error: RunError | None = None
    for step in range(1, steps + 1):
        if step == fail_at_step:
            error = PeerLost(len(names) - 1, names[-1], "no heartbeat for 5 s")
            break
        start_s = _play_step(recorders, step, start_s, stretch)
        clock[0] = start_s
        for rank, recorder in enumerate(recorders):
            noise = 0.01 * rank + 0.05 * math.sin(step * (rank + 1))
            recorder.metrics(step, {"loss": 2.3 * math.exp(-step / 15) + noise})
            if staleness:
                recorder.metrics(step, {"staleness": (step * (rank + 1)) % 5})
        if step % 10 == 0:
            recorders[0].metric_at(clock[0], step, "eval_loss", 2.3 * math.exp(-step / 14))
            recorders[0].metric_at(clock[0], step, "eval_accuracy", 1 - 0.9 * math.exp(-step / 14))
    digest = None if error else hashlib.sha256(weights.encode()).hexdigest()
    nodes = [recorder.finish(digest) for recorder in recorders]
    return RunRecord(nodes, elapsed_s=clock[0], wall_s=0.5, error=error)


def _play_step(recorders: list[Recorder], step: int, start_s: float, stretch: float) -> float:
    """One step from *start_s*; returns when it ends."""
    server, end_s = recorders[0], start_s
    for rank, recorder in enumerate(recorders):
        wire_s, work_s = WIRE_S * stretch, compute_s(rank) * stretch
        ready_s = start_s if rank == 0 else start_s + wire_s
        done_s = ready_s + work_s
        recorder.span("compute", ready_s, done_s, -1, "", 0)
        end_s = max(end_s, done_s)
        if rank == 0:
            continue
        server.span("send", start_s, ready_s, rank, "weights", WEIGHTS_BYTES)
        recorder.span("recv", start_s, ready_s, 0, "weights", WEIGHTS_BYTES)
        recorder.span("send", done_s, done_s + wire_s, 0, "gradients", GRADIENT_BYTES)
        server.span("recv", start_s + compute_s(0) * stretch, done_s + wire_s, rank, "gradients", GRADIENT_BYTES)
        server.sent(rank, WEIGHTS_BYTES)
        recorder.received(WEIGHTS_BYTES)
        recorder.sent(0, GRADIENT_BYTES)
        server.received(GRADIENT_BYTES)
        end_s = max(end_s, done_s + wire_s)
    return end_s


def record_of(*nodes: Recorder, elapsed_s: float) -> RunRecord:
    """A run of nodes filled in by hand."""
    return RunRecord([node.finish("0" * 64) for node in nodes], elapsed_s, wall_s=0.1)


def two_nodes(duplex: str = "full", bandwidth: str = "1 MB/s") -> dict[str, Any]:
    """Nodes a and b and one link a-b of 1 MB/s."""
    return {
        "name": "pair",
        "nodes": {"a": {"device": "raspberry-pi-5"}, "b": {"device": "raspberry-pi-5"}},
        "links": [{"between": ["a", "b"], "bandwidth": bandwidth, "latency": "1 ms", "duplex": duplex}],
    }


def trace_of(record: RunRecord) -> dict[str, Any]:
    """Return the content of the file trace.json of *record*."""
    return {"traceEvents": list(events(record)), **description(record, {})}
