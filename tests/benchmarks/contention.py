"""Many flows at once: how long the network takes to share itself out anew at every end."""

from __future__ import annotations

import random
import statistics

from simcluster.bench.flows import PlainFlow, finish_times
from simcluster.topology import star
from tests.benchmarks.timing import ROUNDS, cpu_s

FLOWS, HOSTS = 1000, 64


def thousand_flows_s() -> float:
    """CPU time of 1,000 random flows that start together among 64 hosts of a star: the median of several runs."""
    chance = random.Random(1)
    flows = []
    for _ in range(FLOWS):
        source, target = chance.sample(range(HOSTS), 2)
        flows.append(PlainFlow(f"n{source}", f"n{target}", float(chance.randrange(10**6, 10**8))))
    cluster = star(HOSTS, bandwidth=125e6, latency=25e-6)
    return statistics.median(cpu_s(lambda: finish_times(cluster, flows)) for _ in range(ROUNDS))
