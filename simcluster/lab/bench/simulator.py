"""Measure the cost of the simulator itself on a simple case: one all-reduce on a star."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import torch

from simcluster.backend import simulator
from simcluster.collectives import ring_all_reduce
from simcluster.documents.limits import MOST_BYTES
from simcluster.errors import Problem, raise_all
from simcluster.process.memory import peak_rss_bytes
from simcluster.topology import star
from simcluster.topology.presets.generators import MOST_WORKERS

BANDWIDTH_BPS = 125e6
LATENCY_S = 25e-6


def bench_simulator(nodes: int, size_bytes: int) -> dict[str, float | int]:
    """Simulate a ring all-reduce of *size_bytes* on a star of *nodes*.

    Links are full duplex, with 125 MB/s and 25 us. Return elapsed_s, wall_s (of the simulation
    including its set-up), messages, and peak_rss_mb of the whole process. elapsed_s is virtual
    time: for M bytes on n nodes, it is 2 (n-1) (2 x 25 us + M/(n x 125 MB/s)). If n does not divide
    M, the largest part replaces M/n.
    """
    problems = [
        Problem(key, str(value), f"at least {least}" if value < least else f"at most {most}")
        for key, value, least, most in (("--nodes", nodes, 1, MOST_WORKERS), ("--bytes", size_bytes, 0, MOST_BYTES))
        if not least <= value <= most
    ]
    raise_all(problems)

    async def body(node: Any) -> tuple[float, int]:
        # Single-byte elements make the parts nearly equal. The tensor has no values: only time
        # counts.
        await ring_all_reduce(node, torch.empty(size_bytes, dtype=torch.uint8, device="meta"), "bench")
        return asyncio.get_running_loop().time(), node.recorder.record.messages_sent

    cluster = star(nodes, bandwidth=BANDWIDTH_BPS, latency=LATENCY_S)
    began_s = time.perf_counter()  # This time is only printed: no decision depends on it.
    ends = simulator().run_bodies([body] * nodes, cluster)
    wall_s = time.perf_counter() - began_s
    for end in ends:
        if isinstance(end, BaseException):
            raise end
    return {
        "nodes": nodes,
        "bytes": size_bytes,
        "elapsed_s": max(end[0] for end in ends),
        "wall_s": wall_s,
        "messages": sum(end[1] for end in ends),
        "peak_rss_mb": peak_rss_bytes() / 2**20,
    }
