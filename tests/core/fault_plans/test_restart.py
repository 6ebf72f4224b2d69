"""A node that crashes and comes back: another incarnation, from the beginning, to whom nothing of the old one is said.

Links of 1 MB/s and 50 ms, so that a route takes 100 ms.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from simcluster_backends.sim.cluster import SimCluster
from simcluster_backends.sim.faults import SimFaults

from simcluster.errors import PeerLost
from simcluster.transport import Cost, Transport
from tests.backends.sim.test_sim_faults import MB, idle_for, links, now
from tests.core.fault_plans.test_join_leave import cluster_of, comes, run
from tests.support.clusters import outcome, with_nodes
from tests.support.plans import plan

CRASHED = "crashed by the fault plan"


def test_the_body_runs_again_from_its_beginning_and_its_second_life_counts() -> None:
    lives: list[float] = []

    async def body(node: Transport) -> float:
        lives.append(now())
        await node.compute(lambda: None, cost=Cost(3e9))  # 3 s
        return now()

    assert run([body], "kind: restart, node: n0, at: 1 s, after: 500 ms") == [4.5]
    assert lives == [0.0, 1.5]


def test_what_is_first_sent_before_its_end_is_heard_of_is_lost() -> None:
    # It is back after 1.01 s, and both pieces of news take 0.1 s: at 1.05 s the sender means the former life.
    async def sends(node: Transport) -> None:
        await asyncio.sleep(1.05)
        await node.send(1, "early", None)
        with pytest.raises(PeerLost, match=CRASHED):
            await node.recv(1)
        await comes(node, 1)
        await node.send(1, "late", None)

    async def receives(node: Transport) -> str:
        return (await node.recv(0)).tag

    assert run([sends, receives], "kind: restart, node: n1, at: 1 s, after: 10 ms")[1] == "late"


def test_a_message_in_a_send_buffer_tells_nobody_of_a_loss() -> None:
    # The buffer holds it until 5 s. The peer is gone at 1 s and back at 1.01; the sender asks nothing before 3 s.
    async def sends(node: Transport) -> float:
        await node.send(1, "early", MB.repeat(5))
        await asyncio.sleep(3)
        with pytest.raises(PeerLost, match=CRASHED):
            await node.send(1, "unheard", None)
        told_s = now()
        await comes(node, 1)
        await node.send(1, "late", None)
        return told_s

    async def receives(node: Transport) -> str:
        return (await node.recv(0)).tag

    topology = with_nodes(links(2), send_buffer_bytes=5_000_000)
    cluster = SimCluster(topology, faults=SimFaults(plan(topology, "kind: restart, node: n1, at: 1 s, after: 10 ms")))
    assert cluster.run([sends, receives]) == [3.0, "late"]


def test_it_may_come_back_several_times() -> None:
    async def body(node: Transport) -> float:
        await asyncio.sleep(3)
        return now()

    assert run([body], "kind: restart, node: n0, at: 1 s, after: 500 ms, every: 2 s, times: 3") == [8.5]


def test_a_send_to_it_raises_once_and_then_reaches_the_new_one() -> None:
    async def returns(node: Transport) -> Any:
        return (await node.recv(0, "t"))["value"]

    async def sender(node: Transport) -> None:
        await asyncio.sleep(5)
        with pytest.raises(PeerLost, match=CRASHED):
            await node.send(1, "t", "to the old one")
        await asyncio.sleep(1)
        await node.send(1, "t", "to the new one")

    assert run([sender, returns], "kind: restart, node: n1, at: 1 s, after: 500 ms") == [None, "to the new one"]


def test_nothing_of_one_incarnation_is_received_as_anothers() -> None:
    async def returns(node: Transport) -> list[Any]:
        life = now()
        await node.send(0, "early", life)  # never received in the first life
        got = await node.recv(0, "t")
        return [life, got["value"]]

    async def peer(node: Transport) -> list[Any]:
        await asyncio.sleep(0.95)
        await node.send(1, "t", "for the old one")  # under way when it dies at 1 s
        with pytest.raises(PeerLost):
            await node.recv(1, "never")
        await asyncio.sleep(1)
        await node.send(1, "t", "for the new one")
        return [(await node.recv(1, "early"))["value"]]

    cluster = cluster_of(2, "kind: restart, node: n1, at: 1 s, after: 20 ms")
    assert cluster.run([peer, returns]) == [[1.02], [1.02, "for the new one"]]
    (row,) = cluster.faults.log.rows()
    # "for the old one", and nothing else: a header alone.
    assert row["dropped_bytes"] == cluster.members[0].recorder.record.sent_to[1][1] // 2


def test_whoever_was_not_told_yet_does_not_hear_of_the_new_ones_end_as_of_the_old_ones() -> None:
    async def short(node: Transport) -> None:
        await node.send(0, "hello", now())
        await asyncio.sleep(1.2)

    async def waits(node: Transport) -> list[str]:
        reasons = []
        for _ in range(2):
            with pytest.raises(PeerLost) as lost:
                while True:
                    await node.recv(1, "hello")
            reasons.append(lost.value.reason)
            await asyncio.sleep(0.7)
        return reasons

    results = run([waits, short], "kind: restart, node: n1, at: 1 s, after: 500 ms")
    assert results == [[CRASHED, "ended its algorithm"], None]


def test_its_device_and_its_slowness_are_its_own_in_every_life() -> None:
    async def body(node: Transport) -> float:
        await node.compute(lambda: None, cost=Cost(1e9))
        return now()

    faults = ("kind: slow, node: n0, factor: 2, at: 0 s", "kind: restart, node: n0, at: 1 s, after: 500 ms")
    assert run([body], *faults) == [3.5]


def test_a_hang_does_not_outlive_a_crash() -> None:
    async def body(node: Transport) -> float:
        await node.compute(lambda: None, cost=Cost(1e9))
        return now()

    faults = ("kind: hang, node: n0, at: 500 ms, for: 1 h", "kind: restart, node: n0, at: 1 s, after: 500 ms")
    assert run([body], *faults, dead_s=1e6) == [2.5]


def test_whoever_comes_back_when_all_others_have_ended_is_lost_and_fails_nothing() -> None:
    async def worker(node: Transport) -> None:
        await node.send(0, "t", 1)
        await node.recv(0, "never")

    async def server(node: Transport) -> None:
        with pytest.raises(PeerLost):
            await node.recv(1, "never")

    cluster = cluster_of(2, "kind: restart, node: n1, at: 1 s, after: 1 h")
    cluster.run([server, worker])
    assert outcome(cluster) == (None, {"n1": "crashed by the fault plan, and came back too late"})


def test_a_node_does_not_begin_again_once_all_others_have_ended() -> None:
    lives = []

    async def body(node: Transport) -> None:
        lives.append((node.rank, now()))
        await asyncio.sleep(2 if node.rank else 0.5)

    cluster = cluster_of(2, "kind: restart, node: n1, at: 400 ms, after: 100.001 ms")
    cluster.run([body, body])
    assert outcome(cluster) == (None, {"n1": "crashed by the fault plan, and came back too late"})
    assert lives == [(0, 0.0), (1, 0.0)]


def test_a_node_begins_again_where_all_others_are_lost() -> None:
    lives = []

    async def body(node: Transport) -> None:
        lives.append((node.rank, now()))
        await asyncio.sleep(1)

    cluster = cluster_of(2, "kind: crash, node: n0, at: 200 ms", "kind: restart, node: n1, at: 400 ms, after: 1 s")
    cluster.run([body, body])
    assert outcome(cluster) == (None, {"n0": "crashed by the fault plan"})
    assert lives == [(0, 0.0), (1, 0.0), (1, 1.4)]


def test_a_node_that_had_ended_does_not_come_back() -> None:
    lives = []

    async def short(node: Transport) -> None:
        lives.append(now())
        await asyncio.sleep(0.5)

    assert run([short, idle_for(5)], "kind: restart, node: n0, at: 1 s, after: 500 ms") == [None, None]
    assert lives == [0.0]


def test_a_message_half_sent_by_the_old_one_never_arrives() -> None:
    async def returns(node: Transport) -> None:
        await node.send(0, "t", [MB])

    async def waits(node: Transport) -> list[float]:
        with pytest.raises(PeerLost):
            await node.recv(1, "t")
        await comes(node, 1)
        await node.recv(1, "t")
        return [now()]

    # 1 s a message: the first dies halfway. The second begins when its receiver sees that somebody is back, at 1.1 s.
    results = run([waits, returns], "kind: restart, node: n1, at: 500 ms, after: 500 ms")
    assert results == [[pytest.approx(2.2, abs=0.011)], None]


def test_the_recorder_says_which_life_it_is() -> None:
    lives = []

    async def body(node: Transport) -> None:
        lives.append(node.recorder.incarnation)  # type: ignore[attr-defined]
        await asyncio.sleep(3)

    run([body, idle_for(9)], "kind: restart, node: n0, at: 1 s, after: 500 ms, every: 2 s, times: 2")
    assert lives == [0, 1, 2]
