"""Many flows and many nodes at once: the cost of a flow's end, and of a message as the cluster grows.

python -m tests.benchmarks.contention
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from typing import Any
from unittest.mock import patch

import simcluster
from simcluster.bench.flows import PlainFlow, finish_times
from simcluster.topology import star
from simcluster_backends.sim.cluster import Cluster
from tests.benchmarks.timing import ROUNDS, cpu_s

FLOWS, HOSTS = 1000, 64
STEPS = 5
CASES = {"sync_ps": (64, 256, 1024), "edp": (64, 256), "fedbuff": (64, 256)}


def thousand_flows_s() -> float:
    """CPU time of 1,000 random flows that start together among 64 hosts of a star: the median of several runs."""
    return statistics.median(flows_s(FLOWS, HOSTS) for _ in range(ROUNDS))


def flows_s(number: int, hosts: int) -> float:
    """CPU time of *number* random flows that start together among *hosts* of a star."""
    chance = random.Random(1)
    flows = []
    for _ in range(number):
        source, target = chance.sample(range(hosts), 2)
        flows.append(PlainFlow(f"n{source}", f"n{target}", float(chance.randrange(10**6, 10**8))))
    cluster = star(hosts, bandwidth=125e6, latency=25e-6)
    return cpu_s(lambda: finish_times(cluster, flows))


def message_us(algorithm: str, workers: int) -> float:
    """CPU time of one message of *algorithm*, timing only, on a star of *workers* at 1 Gbps, without the set-up."""
    spent: list[tuple[float, int]] = []
    run = Cluster.run

    def timed(cluster: Cluster, bodies: Any) -> list[Any]:
        began_s = time.process_time()
        ends = run(cluster, bodies)
        messages = sum(member.recorder.record.messages_sent for member in cluster.members)
        spent.append((time.process_time() - began_s, messages))
        return ends

    size = {"topology.workers": workers, "topology.bandwidth": "1 Gbps", "stop.steps": STEPS, "numerics": "none"}
    with tempfile.TemporaryDirectory() as out, patch.object(Cluster, "run", timed):
        overrides = {**size, "algorithm.name": algorithm}
        simcluster.run("eight-on-a-switch", overrides=overrides, out=f"{out}/run", report=False)
    ((took_s, messages),) = spent
    return took_s / messages * 1e6


def main() -> None:
    print(f"CPU time of a message, timing only, {STEPS} steps on a star at 1 Gbps")
    for algorithm, sizes in CASES.items():
        for workers in sizes:
            print(f"  {algorithm} on {workers:>5,} nodes: {message_us(algorithm, workers):,.0f} us", flush=True)
    print(f"{FLOWS:,} flows at once among {HOSTS} hosts: {flows_s(FLOWS, HOSTS):.2f} s")


if __name__ == "__main__":
    main()
