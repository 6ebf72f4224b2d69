"""The schedules of sub-groups are computed, too, also after ranks are lost, while no other rank sends anything."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simcluster_backends.sim.cluster import SimCluster
from simcluster_backends.sim.faults import SimFaults
from simcluster_backends.sim.lookahead import ScheduleEntrants

import simcluster
from simcluster.collectives.subgroup import NamedSubgroup, subgroup
from simcluster.fault_plans.kinds import Crash
from simcluster.payload import pack
from simcluster.transport import Transport
from tests.backends.sim.lookahead.oracle import SCHEDULES, Declining, Never, Skipping, nothing, now, same
from tests.support.clusters import star


@pytest.mark.parametrize("schedule", ["ring", "tree_near", "doubling_far", "halving_near", "pairwise_all_to_all"])
@settings(max_examples=20, deadline=None)
@given(st.permutations(range(7)), st.integers(2, 6), st.integers(0, 5000), st.sampled_from([0.0, 25e-6]), st.booleans())
def test_the_schedule_of_a_group_is_as_simulated(
    schedule: str, order: list[int], size: int, length: int, latency_s: float, is_named: bool
) -> None:
    ranks = order[:size]

    async def body(node: Transport) -> list[float]:
        times = []
        if node.rank in ranks:
            inside = NamedSubgroup(node, ranks, "g") if is_named else subgroup(node, ranks)
            for number in range(2):
                await asyncio.sleep(1e-6 * (node.rank % 3))
                await SCHEDULES[schedule](inside, length, f"s{number}")
                times.append(now())
        # All ranks meet the group's traffic afterwards.
        async with asyncio.TaskGroup() as group:
            group.create_task(node.send((node.rank + 1) % 7, "after", pack(nothing(997))))
            group.create_task(node.recv((node.rank - 1) % 7, "after"))
        return [*times, now()]

    same(star(7, latency_s=latency_s), body)


def test_all_rounds_of_a_group_but_the_last_are_computed() -> None:
    async def body(node: Transport) -> list[float]:
        times = []
        if node.rank == 1:
            await asyncio.sleep(1.0)
        else:
            for number in range(2):  # one right after the other: each enters as soon as its last message has come
                group = subgroup(subgroup(node, [5, 4, 3, 2, 1, 0]), [1, 0, 2, 3, 5])
                await SCHEDULES["ring"](group, 16000, f"s{number}")
                times.append(now())
        return times

    assert same(star(6), body) == [7] * 10


def test_two_groups_at_once_are_simulated() -> None:
    async def body(node: Transport) -> float:
        await SCHEDULES["ring"](subgroup(node, [0, 1, 2] if node.rank < 3 else [3, 4, 5]), 16000, "s")
        return now()

    assert same(star(6), body) == [0] * 6


def rounds_after_a_loss(way: type[ScheduleEntrants], crash_s: float) -> tuple[Any, ScheduleEntrants]:
    """Rank 1 dies at *crash_s* while all are in a ring, and the others begin another one when they know."""

    async def body(node: Transport) -> list[Any]:
        times: list[Any] = []
        try:
            async with asyncio.timeout(0.02):
                await SCHEDULES["ring"](node, 400_000, "all")
        except (simcluster.errors.PeerLost, TimeoutError) as error:
            times.append(type(error).__name__)
        times.append(now())
        while now() < 0.05:  # what the broken ring has left
            with suppress(simcluster.errors.PeerLost, TimeoutError):
                async with asyncio.timeout_at(0.05):
                    await node.recv()
        await asyncio.sleep(0.1 - now())
        for number in range(2):
            await SCHEDULES["ring"](NamedSubgroup(node, [0, 2, 3, 4], "left"), 16000, f"s{number}")
            times.append(now())
        return times

    plan = [Crash(rank=1, spells=((crash_s, float("inf")),))]
    cluster = SimCluster(star(5), faults=SimFaults(plan))
    cluster.together = way(cluster.loop, cluster.members, cluster.streams, cluster.membership, cluster.routes)
    ends = cluster.run([body] * 5)
    records = [node.recorder.record for node in cluster.members]
    return [[repr(end) for end in ends], [(r.sent_to, r.bytes_received) for r in records]], cluster.together


@pytest.mark.parametrize("crash_s", np.linspace(1e-4, 15e-3, 8).tolist())
def test_survivors_are_computed_and_nothing_changes(crash_s: float) -> None:
    simulated, _ = rounds_after_a_loss(Never, crash_s)
    assert rounds_after_a_loss(Declining, crash_s)[0] == simulated
    computed, together = rounds_after_a_loss(Skipping, crash_s)
    assert computed == simulated
    assert isinstance(together, Skipping)
    assert together.left_out[-4:] == [5] * 4


def test_rounds_are_computed_up_to_the_next_event() -> None:
    async def body(node: Transport) -> float:
        async def interfere() -> None:
            await asyncio.sleep(3e-3)
            await node.send(2, "between", nothing(1000))

        async with asyncio.TaskGroup() as group:
            if node.rank == 0:
                group.create_task(interfere())
            await SCHEDULES["ring"](node, 160_000, "s")
            if node.rank == 2:
                await node.recv(0, "between")
        return now()

    # A round takes 1.33 ms.
    assert same(star(4), body) == [2] * 4
