"""Latency that varies: the means it promises, order kept, a stream of its own for each direction of a link."""

from __future__ import annotations

import asyncio
import math
from itertools import pairwise

import numpy as np
import pytest
from simcluster_backends.sim.plain_flows import finish_times

from simcluster.topology import Topology
from simcluster.topology.model.conditions import Jitter
from simcluster.topology.plain_flows import PlainFlow
from simcluster.transport import Transport
from tests.support.clusters import arrivals, now, pair, run, star, with_links

MEAN_S = 0.002
KINDS = [Jitter(MEAN_S), Jitter(MEAN_S, "uniform"), Jitter(MEAN_S, "lognormal", 0.5)]
DEVIATIONS_S = [MEAN_S, MEAN_S / math.sqrt(3), MEAN_S * math.sqrt(math.exp(0.25) - 1)]
"""Of an exponential, of one uniform from 0 to twice the mean, of a lognormal with sigma 0.5."""


def one_by_one(topology: Topology, count: int, seed: int = 0) -> list[float]:
    """The latency of each of *count* messages, every one sent a second after the one before."""

    async def sender(node: Transport) -> None:
        for _ in range(count):
            await node.send(1, "t", None)
            await asyncio.sleep(1)

    async def receiver(node: Transport) -> list[float]:
        times = []
        for number in range(count):
            await node.recv(0, "t")
            times.append(now() - number)
        return times

    found: list[float] = run(topology, sender, receiver, seed=seed)[1]
    return found


@pytest.mark.parametrize(("jitter", "deviation_s"), list(zip(KINDS, DEVIATIONS_S, strict=True)), ids=str)
def test_jitter_has_its_mean_and_its_deviation_and_is_never_negative(jitter: Jitter, deviation_s: float) -> None:
    count = 2000
    extra_s = np.array(one_by_one(pair(latency_s=0.01, jitter=jitter), count)) - 0.01
    assert extra_s.min() >= 0
    assert extra_s.mean() == pytest.approx(MEAN_S, abs=4 * deviation_s / math.sqrt(count))

    assert extra_s.std() == pytest.approx(deviation_s, rel=0.12)  # 4 times 0.03, of the lognormal one
    assert jitter.kind != "uniform" or extra_s.max() < 2 * MEAN_S


def test_no_message_overtakes_the_one_before() -> None:
    # 10 us of bytes each, 20 ms of jitter: drawn alone, nearly half of them would come in out of order
    times = arrivals(pair(1e6, 0.001, jitter=Jitter(0.02)), [10] * 200)
    assert all(before <= after for before, after in pairwise(times))
    assert len(set(times)) < 150, "many come in together, behind a late one"


def test_every_link_of_a_way_adds_its_own() -> None:
    count = 2000
    two_links = with_links(star(2, latency_s=0.001), jitter=Jitter(MEAN_S))
    extra_s = np.array(one_by_one(two_links, count)) - 0.002
    assert extra_s.mean() == pytest.approx(2 * MEAN_S, abs=4 * MEAN_S * math.sqrt(2 / count))


def test_the_same_seed_draws_the_same_and_another_one_others() -> None:
    jittery = pair(latency_s=0.01, jitter=KINDS[0])
    assert one_by_one(jittery, 5) == one_by_one(jittery, 5)
    assert not set(one_by_one(jittery, 5)) & set(one_by_one(jittery, 5, seed=1))
    assert one_by_one(pair(latency_s=0.01), 5) == pytest.approx([0.01] * 5, rel=1e-9), "and none without jitter"


def test_the_way_back_has_draws_of_its_own() -> None:
    async def body(node: Transport) -> float:
        await node.send(1 - node.rank, "t", None)
        await node.recv(1 - node.rank, "t")
        return now()

    there, back = run(pair(latency_s=0.01, jitter=KINDS[0]), body, body)
    assert there != back


def test_what_others_draw_on_other_links_changes_nothing() -> None:
    jittery = with_links(star(3, latency_s=0.001), jitter=KINDS[0])

    def first_arrival(noise: bool) -> float:
        async def sender(node: Transport) -> None:
            await node.send(1, "t", None)

        async def receiver(node: Transport) -> float:
            await node.recv(0, "t")
            return now()

        async def third(node: Transport) -> None:
            if noise:
                await node.send(0, "noise", None)  # over n2's link up and n0's down: not those of n0 to n1

        found: float = run(jittery, sender, receiver, third)[1]
        return found

    assert first_arrival(noise=True) == first_arrival(noise=False)


def test_plain_flows_feel_it_too() -> None:
    flow = [PlainFlow("n0", "n1", 1e6)]
    assert finish_times(pair(latency_s=0.01), flow) == [1.01]
    ends = [finish_times(pair(latency_s=0.01, jitter=KINDS[0]), flow, seed=seed)[0] for seed in range(20)]
    assert len(set(ends)) == 20
    assert min(ends) > 1.01
