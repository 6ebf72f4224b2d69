"""`python -m tools.benchmarks.tls`: the cost of TLS relative to plain connections of two local
nodes.

Both kinds alternate in one run, so that other load on the machine affects them equally.
docs/security.md has the numbers.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from simcluster_backends.sockets import run_cluster
from simcluster_backends.sockets.net.addresses import open_socket
from simcluster_backends.sockets.net.certificates import make_certificates
from simcluster_backends.sockets.net.listener import SocketListener, connect
from simcluster_backends.sockets.net.tls import Tls, read_tls
from simcluster_backends.sockets.wire.handshake import Handshake, PeerIdentity

from simcluster.job import ClusterJob
from simcluster.runs.record import NodeRecord
from simcluster.runs.recorder import Recorder

PAIRS = 7
LARGE_BYTES = 25_000_000
LARGE_TIMES = 8
SMALL_TIMES = 500
CONNECTS = 40


async def ping_pong(node: Any, recorder: Recorder, config: str) -> NodeRecord:
    """Exchange large tensors in both directions at once.

    Then send a small message back and forth.
    """
    other = 1 - node.rank
    large = torch.zeros(LARGE_BYTES // 4)
    for step in range(LARGE_TIMES + 1):
        if step == 1:  # the first exchange warms up the connection
            began_s = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            group.create_task(node.send(other, "large", large))
            group.create_task(node.recv(other, "large"))
    rate_Bps = LARGE_TIMES * LARGE_BYTES / (time.perf_counter() - began_s)
    began_s = time.perf_counter()
    for _ in range(SMALL_TIMES):
        if node.rank:
            await node.send(other, "small", 1)
        await node.recv(other, "small")
        if not node.rank:
            await node.send(other, "small", 1)
    node.record(step=1, rate_Bps=rate_Bps, round_trip_s=(time.perf_counter() - began_s) / SMALL_TIMES)
    return recorder.finish(None)


def _one(options: dict[str, Any]) -> dict[str, float]:
    job = ClusterJob(["a", "b"], json.dumps({}), program="tools.benchmarks.tls:ping_pong", options=options)
    record = run_cluster(job)
    assert record.error is None, record.error
    return {metric.name: metric.value for metric in record.nodes[0].metrics}


async def _connects(tls: Tls | None, other: Tls | None) -> float:
    """Return the median seconds until a connection is open, after our handshake and that of TLS, if
    any.
    """

    def make(name: str, accepts: bool) -> Handshake:
        return Handshake(b"k" * 32, PeerIdentity("control", name), accepts=accepts)

    listener = SocketListener(lambda: make("a", True), lambda _: None, tls=tls)
    await listener.start(open_socket("127.0.0.1", 0, "bench"))
    times = []
    for _ in range(CONNECTS):
        began_s = time.perf_counter()
        connection = await connect(
            "127.0.0.1", listener.port, lambda: make("b", False), on_open=lambda _: None, timeout_s=5.0, tls=other
        )
        times.append(time.perf_counter() - began_s)
        await connection.end()
    await listener.close()
    return statistics.median(times)


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "certificates"
        make_certificates(folder, ["a", "b"], 1)
        plain, secure = [], []
        for _ in range(PAIRS):
            plain.append(_one({}))
            secure.append(_one({"tls": str(folder)}))
        for name, unit, scale in (("rate_Bps", "MB/s each way", 1e-6), ("round_trip_s", "us a round trip", 1e6)):
            of_plain, of_secure = (statistics.median(run[name] for run in runs) for runs in (plain, secure))
            ratios = [s[name] / p[name] for p, s in zip(plain, secure, strict=True)]
            print(
                f"{unit}: plain {of_plain * scale:.0f}, TLS {of_secure * scale:.0f}; TLS / plain"
                f" {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f} in {PAIRS} pairs)"
            )
        a, b = read_tls(folder, "a"), read_tls(folder, "b")
        once = [(asyncio.run(_connects(None, None)), asyncio.run(_connects(a, b))) for _ in range(3)]
        plain_s, secure_s = (statistics.median(pair[i] for pair in once) for i in (0, 1))
        print(f"ms until open: plain {plain_s * 1e3:.2f}, TLS {secure_s * 1e3:.2f}; ratio {secure_s / plain_s:.1f}")


if __name__ == "__main__":
    main()
