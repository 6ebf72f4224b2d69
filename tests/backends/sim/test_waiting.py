"""What waiting for stragglers costs: the closed forms of the literature, in the simulator, with fixed seeds.

Dutta et al. 2018 (Slow and Stale Gradients Can Win the Race) for the times of K-sync and its kin, Zhang, Gupta, Lian
and Liu 2016 for staleness, Chen et al. 2016 for backup workers. Rank 0 serves; links are ideal, so that nothing but
computing takes time. Means are held to 3 standard errors, which follow from the same distributions.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable

import numpy as np
import pytest
from simcluster_backends.sim import SimCluster
from simcluster_backends.sim.devices import DeviceModel
from simcluster_backends.sim.transport import SimTransport

from simcluster.topology import Device
from simcluster.topology.model.stragglers import Constant, Exponential, Straggler, TwoPoint
from simcluster.transport import ANY, Cost
from tests.support.clusters import star

P = 4
"""Workers, each of which takes an exponential time of mean 1 s for a gradient."""

GRADIENT = Cost(1e9)

Serve = Callable[[SimTransport], Awaitable[None]]


def harmonic(n: int) -> float:
    return math.fsum(1 / k for k in range(1, n + 1))


def time_of(serve: Serve, work: Serve, workers: int = P, stragglers: list[Straggler] | None = None) -> float:
    """Virtual seconds that it takes rank 0 to end *serve*, while all others *work*."""
    stragglers = stragglers or [Exponential(1.0)] * workers
    devices = {f"n{rank}": Device("d", 1e9, straggler=straggler) for rank, straggler in enumerate(stragglers, start=1)}
    cluster = SimCluster(star(workers + 1, bandwidth_Bps=1e15, latency_s=0.0, **devices), seed=1)
    ended_s = []

    async def server(node: SimTransport) -> None:
        await serve(node)
        ended_s.append(cluster.loop.time())
        for rank in range(1, node.size):
            await node.send(rank, "order", "end")

    results = cluster.run([server] + [work] * workers)
    assert not any(isinstance(result, BaseException) for result in results), results
    return float(ended_s[0])


async def obey(node: SimTransport) -> None:
    """A worker: starts a gradient at "go", drops it at "stop", reports each that it ends."""
    working: asyncio.Task[None] | None = None

    async def gradient() -> None:
        await node.compute(lambda: None, cost=GRADIENT)
        await node.send(0, "done", None)

    while (order := (await node.recv(0, "order")).payload.values["value"]) != "end":
        if working is not None:
            working.cancel()
        working = asyncio.create_task(gradient()) if order == "go" else None


async def tell(node: SimTransport, order: str, ranks: list[int] | None = None) -> None:
    for rank in ranks or range(1, node.size):
        await node.send(rank, "order", order)


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_k_sync_waits_for_the_kth_of_p_exponentials(k: int) -> None:
    """E[T] = H_P - H_(P-K); full synchrony, K = P, waits for H_P. The variance is the same sum of squares."""
    steps = 1000

    async def serve(node: SimTransport) -> None:
        for _ in range(steps):
            await tell(node, "go")
            for _ in range(k):
                await node.recv(ANY, "done")
            await tell(node, "stop")

    mean_s = time_of(serve, obey) / steps
    variance = math.fsum(1 / i**2 for i in range(P - k + 1, P + 1))
    assert mean_s == pytest.approx(harmonic(P) - harmonic(P - k), abs=3 * math.sqrt(variance / steps))


@pytest.mark.parametrize("k", [2, 6])
def test_k_batch_sync_takes_k_over_p(k: int) -> None:
    """Whoever is ready goes on with the same weights until K gradients are in: K exponentials of rate P."""
    steps = 600

    async def serve(node: SimTransport) -> None:
        for _ in range(steps):
            await tell(node, "go")
            for left in range(k, 0, -1):
                done = await node.recv(ANY, "done")
                if left > 1:
                    await tell(node, "go", [done.source])
            await tell(node, "stop")

    assert time_of(serve, obey) / steps == pytest.approx(k / P, abs=3 * math.sqrt(k / P**2 / steps))


def test_k_async_waits_no_longer_than_k_sync() -> None:
    """The P - K others go on with their stale work; E[T] <= H_P - H_(P-K)."""
    steps, k = 1000, 2

    async def serve(node: SimTransport) -> None:
        await tell(node, "go")
        for _ in range(steps):
            ready = [(await node.recv(ANY, "done")).source for _ in range(k)]
            await tell(node, "go", ready)

    variance = math.fsum(1 / i**2 for i in range(P - k + 1, P + 1))
    assert time_of(serve, obey) / steps <= harmonic(P) - harmonic(P - k) + 3 * math.sqrt(variance / steps)


def test_asynchrony_is_p_times_h_p_faster_than_full_synchrony() -> None:
    """A gradient every 1/P seconds, against one of all every H_P."""
    updates = 4000

    async def serve(node: SimTransport) -> None:
        await tell(node, "go")
        for _ in range(updates):
            done = await node.recv(ANY, "done")
            await tell(node, "go", [done.source])

    assert time_of(serve, obey) / updates == pytest.approx(1 / P, abs=3 / P / math.sqrt(updates))


def test_the_slowest_of_many_devices_is_h_n_times_slower_than_one() -> None:
    """E max of n exponentials, by the devices' own streams: no node's draws have to do with another's."""
    n, steps = 50, 2000
    device = Device("d", 1e9, straggler=Exponential(1.0))
    models = [DeviceModel(device, 5, f"n{rank}") for rank in range(n)]
    slowest = [max(model.start(GRADIENT, 0.0) for model in models) for _ in range(steps)]
    variance = math.fsum(1 / k**2 for k in range(1, n + 1))
    assert np.mean(slowest) == pytest.approx(harmonic(n), abs=3 * math.sqrt(variance / steps))


# staleness


def stalenesses(stragglers: list[Straggler], updates: int) -> dict[int, list[int]]:
    """By worker, how many updates there were between each gradient's weights and its arrival; one in flight each."""
    found: dict[int, list[int]] = {rank: [] for rank in range(1, len(stragglers) + 1)}

    async def serve(node: SimTransport) -> None:
        taken_at = dict.fromkeys(found, 0)
        await tell(node, "go")
        for version in range(updates):
            rank = (await node.recv(ANY, "done")).source
            found[rank].append(version - taken_at[rank])
            taken_at[rank] = version + 1
            await tell(node, "go", [rank])

    time_of(serve, obey, len(stragglers), stragglers)
    return found


def test_equal_workers_are_n_minus_1_updates_late_each_time() -> None:
    by_rank = stalenesses([Constant(1.0)] * 5, 100)
    for rank, found in by_rank.items():
        assert found == [rank - 1] + [4] * 19


def test_whatever_the_speeds_staleness_is_n_minus_1_on_average() -> None:
    """The last gradient of each worker aside, gaps between its arrivals cover every update once."""
    speeds: list[Straggler] = [Constant(1.0), Constant(1.7), Exponential(3.0), TwoPoint(9.0, 0.2)]
    found = [staleness for each in stalenesses(speeds, 4000).values() for staleness in each]
    # Each worker's stalenesses and updates add up to the versions from its first weights to its last arrival, so the
    # sum over 4 workers falls short of 4 x 4000 by what came after their last arrivals: less than 60 each, by far.
    assert sum(found) / len(found) == pytest.approx(3.0, abs=4 * 60 / 4000)


def test_staleness_of_exponential_workers_is_geometric() -> None:
    """P(tau = k) = (1 - 1/n)^k / n: who is next depends on nothing."""
    updates, n = 6000, 4
    found = Counter(tau for each in stalenesses([Exponential(1.0)] * n, updates).values() for tau in each)
    for k in range(8):
        probability = (1 - 1 / n) ** k / n
        error = math.sqrt(probability * (1 - probability) / updates)
        assert found[k] / updates == pytest.approx(probability, abs=4 * error)


def test_a_slower_worker_is_staler_by_how_much_slower_it_is() -> None:
    """Worker i of rate r_i, of R in all: R/r_i - 1 on average."""
    means = [1.0, 2.0, 4.0]
    by_rank = stalenesses([Exponential(mean) for mean in means], 6000)
    total = sum(1 / mean for mean in means)
    for mean, found in zip(means, by_rank.values(), strict=True):
        expected = total * mean - 1
        # Geometric: the variance is (R/r)(R/r - 1).
        error = math.sqrt((expected + 1) * expected / len(found))
        assert np.mean(found) == pytest.approx(expected, abs=3 * error)


def test_with_one_percent_of_steps_ten_times_slower_it_is_best_to_wait_for_about_95_of_100() -> None:
    """Chen et al. 2016. T is 1 if at most 100 - m are slow, else 10; the slow ones are about Poisson(1)."""
    steps = 3000
    device = Device("d", 1e9, straggler=TwoPoint(10.0, 0.01))
    models = [DeviceModel(device, 2, f"n{rank}") for rank in range(100)]
    times_s = np.sort([[model.start(GRADIENT, 0.0) for model in models] for _ in range(steps)], axis=1)
    gradients_per_s = {m: m / times_s[:, m - 1].mean() for m in range(80, 101)}
    assert max(gradients_per_s, key=lambda m: gradients_per_s[m]) in (94, 95, 96)
    # Waiting for all takes 10 s whenever any of 100 is slow: 1 + 9 (1 - 0.99^100) = 6.7 s on average.
    slow = 1 - 0.99**100
    assert times_s[:, 99].mean() == pytest.approx(1 + 9 * slow, abs=3 * 9 * math.sqrt(slow * (1 - slow) / steps))
