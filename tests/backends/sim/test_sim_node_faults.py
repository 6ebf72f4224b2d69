"""Faults of nodes in virtual time: slow, hung, dead; an ideal device does 10^9 FLOPs a second, a route takes 100 ms."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import torch
from simcluster_backends.sim.cluster import SimCluster
from simcluster_backends.sim.faults import SimFaults

import simcluster
from simcluster.errors import PeerLost
from simcluster.topology import Device
from simcluster.topology.model.stragglers import Constant
from simcluster.transport import FREE, Cost, Transport
from tests.backends.sim.test_sim_faults import DEAD_S, MB, idle, idle_for, links, now, receives, run, sends, waits_long
from tests.support.plans import plan


async def works(node: Transport) -> float:
    await node.compute(lambda: None, cost=Cost(1e9))  # 1 s on an ideal device
    return now()


def test_a_slow_down_stretches_the_work_under_way() -> None:
    # 0.5 s of it, then 1/3 of a second in 1 s, then the last 1/6 s.
    slow = "kind: slow, node: n0, factor: 3, at: 500 ms, for: 1 s"
    assert run([works, works], slow) == [pytest.approx(1.5 + 1 / 6), 1.0]


def test_a_node_that_hangs_does_nothing_and_then_goes_on() -> None:
    async def sleeps(node: Transport) -> float:
        await asyncio.sleep(1)
        return now()

    async def gives_up_late(node: Transport) -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await node.recv(0, "never")
        return now()

    hang = "kind: hang, node: n1, at: 500 ms, for: 2 s"
    assert run([idle, works], hang)[1] == 3.0, "half of the work was left"
    assert run([idle_for(9), sleeps], hang)[1] == 2.5
    assert run([idle_for(9), gives_up_late], hang)[1] == 2.5
    assert run([sends(1, torch.zeros(0)), receives()], "kind: hang, node: n1, at: 0 s, for: 2 s")[1] == [2.0]
    assert run([sends(1, torch.zeros(0)), receives()], hang)[1] == [0.1], "not before it hangs"


def test_a_node_that_hangs_begins_no_further_message_but_its_links_stay_up() -> None:
    async def two(node: Transport) -> float:
        async with asyncio.TaskGroup() as group:
            group.create_task(node.send(1, "t", MB))
            group.create_task(node.send(1, "t", MB))
        return now()

    # The first one is under way and goes on: 1 s, and its latency; the second one leaves from 2.5 s on.
    hang = "kind: hang, node: n0, at: 500 ms, for: 2 s"
    assert run([two, receives(0, 2)], hang) == [3.5, [pytest.approx(1.1), pytest.approx(3.6)]]


def test_a_node_that_hangs_for_longer_than_dead_s_is_lost() -> None:
    results = run([waits_long, idle_for(20)], "kind: hang, node: n1, at: 1 s, for: 6 s", dead_s=DEAD_S)
    told_s, lost, _ = results[0]
    assert (told_s, lost.reason) == (pytest.approx(6.1), "silent for 5 s: hung by the fault plan")
    assert isinstance(results[1], asyncio.CancelledError)


def test_two_hangs_of_one_node_that_overlap_end_with_the_last() -> None:
    hangs = ("kind: hang, node: n1, at: 500 ms, for: 1 s", "kind: hang, node: n1, at: 1 s, for: 2 s")
    assert run([idle, works], *hangs)[1] == 3.5


def test_a_dead_node_sends_nothing_even_while_it_cleans_up() -> None:
    async def victim(node: Transport) -> None:
        try:
            await asyncio.sleep(100)
        finally:
            await node.send(1, "t", "a last word")

    async def survivor(node: Transport) -> None:
        with pytest.raises(PeerLost):
            await node.recv(0, "t")

    assert run([victim, survivor], "kind: crash, node: n0, at: 1 s")[1] is None


def test_a_fault_of_a_node_that_has_ended_did_not_happen() -> None:
    topology = links()
    faults = SimFaults(plan(topology, "kind: crash, node: n0, at: 1 s", "kind: hang, node: n0, at: 2 s"))
    cluster = SimCluster(topology, faults=faults)
    assert cluster.run([idle, idle_for(5)]) == [None, None]
    assert faults.log.rows() == []
    assert cluster.gone == {}


def test_a_run_ends_when_its_nodes_do_not_when_its_faults_do() -> None:
    topology = links()
    faults = SimFaults(plan(topology, "kind: cut, link: n0-sw, at: 1 s, for: 1 h"))
    cluster = SimCluster(topology, faults=faults)
    cluster.run([idle, idle_for(2)])
    assert cluster.loop.time() == 2.0
    assert [row["spells_s"] for row in faults.log.rows()] == [[[1.0, None]]]


def test_a_device_that_is_slow_by_itself_is_slower_still() -> None:
    topology = links(1, n0=Device("slow", flops_per_s=1e9, straggler=Constant(2.0)))
    assert run([works], "kind: slow, node: n0, factor: 5, at: 0 s", topology=topology) == [10.0]


def test_free_work_is_free_under_any_fault_but_a_hang() -> None:
    async def free(node: Transport) -> float:
        await asyncio.sleep(0.5)
        await node.compute(lambda: None, cost=FREE)
        return now()

    assert run([free], "kind: slow, node: n0, factor: 5, at: 0 s", topology=links(1)) == [0.5]
    assert run([free], "kind: hang, node: n0, at: 100 ms, for: 2 s", topology=links(1)) == [2.1]


def test_work_takes_its_time_whether_or_not_a_fault_may_suspend_a_node(tmp_path: Path) -> None:
    # Where nothing may be suspended, work waits on the clock without a timer. The fault would come after the end.
    plan = {"kind": "hang", "node": "n2", "at": "1 h", "for": "1 s"}
    star = {"generator": "star", "workers": 4, "device": "raspberry-pi-5"}
    changes = {"numerics": "none", "topology.nodes.n1.straggler": {"kind": "lognormal", "sigma": 0.5}}
    experiment = {"topology": star, "workload": "quadratic", "stop": {"steps": 30}, "algorithm": "fedbuff"}
    runs = [
        simcluster.run({**experiment, "faults": faults}, overrides=changes, out=tmp_path / name, report=False)
        for name, faults in (("without", []), ("with", [plan]))
    ]
    assert len(runs[0].spans) > 200
    assert runs[0].spans == runs[1].spans


@pytest.mark.parametrize("crash", ["1 s", "1.05 s", "1.2 s"])
def test_the_end_of_a_node_that_has_just_joined_is_heard_of_by_one_that_waits_for_any(crash: str) -> None:
    # The news of its return travels for 100 ms. It may be gone again before that has come.
    async def hears_of_two_ends(node: Transport) -> float:
        for _ in range(2):
            with pytest.raises(PeerLost):
                await node.recv()
        return now()

    faults = ("kind: join, node: n1, at: 1 s", f"kind: crash, node: n1, at: {crash}")
    heard_s = run([hears_of_two_ends, idle_for(9)], *faults)[0]
    assert heard_s == pytest.approx(float(crash.split()[0]) + 0.1, rel=0, abs=1e-9)
