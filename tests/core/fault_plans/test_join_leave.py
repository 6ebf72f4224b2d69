"""Nodes that join late and leave early, in the simulator: who hears of it, when, and what is kept of their part.

Links of 1 MB/s and 50 ms, so that a route takes 100 ms.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from simcluster_backends.sim.cluster import SimCluster
from simcluster_backends.sim.faults import SimFaults

import simcluster
from simcluster.errors import ABSENT, Left, NobodyLeft, PeerLost
from simcluster.results import load_run
from simcluster.transport import ANY, FREE, Cost, Transport
from simcluster.workloads.progress.progress import Progress
from tests.backends.sim.test_sim_faults import Body, idle_for, links, now
from tests.support.clusters import outcome
from tests.support.plans import plan


def cluster_of(size: int, *faults: str, **options: Any) -> SimCluster:
    topology = links(size)
    return SimCluster(topology, faults=SimFaults(plan(topology, *faults), **options))


def run(bodies: list[Body], *faults: str, **options: Any) -> list[Any]:
    return cluster_of(len(bodies), *faults, **options).run(bodies)


async def comes(node: Transport, rank: int) -> float:
    """Returns when *rank* is there."""
    while rank not in node.peers:
        await asyncio.sleep(0.01)
    return now()


# joining


def test_a_late_node_begins_from_the_beginning_when_it_joins_and_its_peers_do_not_have_it_before() -> None:
    async def joins(node: Transport) -> list[Any]:
        await node.send(0, "hello", None)
        return [now(), list(node.peers), node.recorder.incarnation]  # type: ignore[attr-defined]

    async def waits(node: Transport) -> list[Any]:
        before = list(node.peers)
        await node.recv(2, "first")  # from ANY nobody is told of a loss, since nobody is lost
        message = await node.recv(ANY, ANY)
        return [before, message.source, now()]

    async def third(node: Transport) -> None:
        await node.send(0, "first", None)
        await comes(node, 1)

    # It begins at 1 s, which n0 hears at 1.1 s; from then on it takes what comes from there, which travels for 0.1 s.
    results = run([waits, joins, third], "kind: join, node: n1, at: 1 s")
    assert results == [[[2], 1, pytest.approx(1.2)], [pytest.approx(1.1), [0, 2], 1], None]


def test_whoever_needs_exactly_the_one_that_is_not_there_is_told() -> None:
    async def asks(node: Transport) -> list[str]:
        reasons = []
        for verb in (node.recv(1, "t"), node.send(1, "t", None)):
            with pytest.raises(PeerLost) as lost:
                await verb
            reasons.append(lost.value.reason)
        await comes(node, 1)
        await node.send(1, "t", "now")
        return reasons

    async def joins(node: Transport) -> Any:
        return (await node.recv(0, "t"))["value"]

    assert run([asks, joins], "kind: join, node: n1, at: 1 s") == [[ABSENT, ABSENT], "now"]


def test_whoever_has_nobody_but_those_who_are_to_come_waits_for_them_and_no_longer_once_one_has_gone() -> None:
    async def waits(node: Transport) -> list[Any]:
        assert list(node.peers) == []
        message = await node.recv(ANY, "t")
        arrived_s = now()
        with pytest.raises(PeerLost, match="rank 1"):
            await node.recv(ANY, "t")
        return [message.source, arrived_s, now()]

    async def joins(node: Transport) -> None:
        await node.send(0, "t", None)

    # n1 begins at 1 s, is heard of at 1.1 s and of what it sent then at 1.2 s, and has ended at 1.1 s: heard at 1.2 s.
    faults = ["kind: join, node: n1, at: 1 s", "kind: join, node: n2, at: 1 h"]
    results = run([waits, joins, idle_for(1)], *faults)
    assert results[0] == [1, pytest.approx(1.2), pytest.approx(1.2)]


def test_two_who_join_meet_each_other() -> None:
    async def joins(node: Transport) -> int:
        other = 3 - node.rank
        await comes(node, other)
        await node.send(other, "t", node.rank)
        return int((await node.recv(other, "t"))["value"])

    faults = [f"kind: join, node: {name}, at: {at} s" for name, at in (("n1", 1), ("n2", 2))]
    assert run([idle_for(5), joins, joins], *faults) == [None, 2, 1]
    assert run([idle_for(5), joins, joins], faults[0], "kind: join, node: n2, at: 1 s") == [None, 2, 1]


def test_whoever_joins_at_0_s_is_there_from_the_start() -> None:
    async def body(node: Transport) -> list[Any]:
        await node.send(1 - node.rank, "t", None)
        await node.recv(1 - node.rank, "t")
        return [now(), node.recorder.incarnation]  # type: ignore[attr-defined]

    assert run([body, body], "kind: join, node: n1, at: 0 s") == [[0.1, 0]] * 2


def test_what_is_to_happen_to_a_node_before_it_joins_does_not() -> None:
    begun = []

    async def joins(node: Transport) -> None:
        begun.append(now())
        await asyncio.sleep(1)

    early = [f"kind: {kind}, node: n1, at: 1 s" for kind in ("crash", "restart, after: 1 s", "leave", "hang")]
    cluster = cluster_of(2, *early, "kind: join, node: n1, at: 3 s")
    cluster.run([idle_for(9), joins])
    assert begun == [3.0]
    assert [row["kind"] for row in cluster.faults.log.rows()] == ["join"]
    assert cluster.faults.log.rows()[0]["spells_s"] == [[0.0, 3.0]]


def test_a_restart_within_a_restart_does_not_bring_the_node_back_early() -> None:
    lives = []

    async def body(node: Transport) -> None:
        lives.append(now())
        await asyncio.sleep(9)

    run([body], "kind: restart, node: n0, at: 1 s, after: 5 s", "kind: restart, node: n0, at: 2 s, after: 1 s")
    assert lives == [0.0, 6.0]


def test_whoever_joins_when_all_others_have_ended_is_lost_and_fails_nothing() -> None:
    async def joins(node: Transport) -> None:
        await node.recv(0, "never")

    cluster = cluster_of(2, "kind: join, node: n1, at: 1 h")
    cluster.run([idle_for(1), joins])
    assert outcome(cluster) == (None, {"n1": "joined too late"})


def test_one_that_joins_while_another_dies_hears_of_that_loss() -> None:
    async def joins(node: Transport) -> str:
        with pytest.raises(PeerLost) as lost:
            await node.recv(ANY, "never")
        return f"{lost.value.rank} {lost.value.reason}"

    faults = ("kind: crash, node: n2, at: 950 ms", "kind: join, node: n1, at: 1 s")
    results = run([idle_for(5), joins, idle_for(5)], *faults)
    assert results[1] == "2 crashed by the fault plan"


# leaving


async def trains(node: Transport, steps: int = 10, step_s: float = 1.0) -> Progress:
    """Steps of *step_s*, with a message to rank 0 in each."""
    progress = Progress()
    progress.computes = False
    progress.is_to_leave = lambda: node.recorder.told_to_leave  # type: ignore[attr-defined]
    for step in range(1, steps + 1):
        await node.compute(lambda: None, cost=Cost(1e9 * step_s))
        if node.rank:
            await node.send(0, "x", step)
        await progress.checkpoint(step)
    return progress


async def collects(node: Transport) -> list[Any]:
    """What comes of rank 1, until that is lost: (value, time) of each, then why it is lost, and when."""
    got: list[Any] = []
    while True:
        try:
            got.append(((await node.recv(1, "x"))["value"], now()))
        except PeerLost as lost:
            return [*got, (lost.reason, now())]


def test_a_node_leaves_at_the_end_of_its_step_and_what_it_sent_comes_first() -> None:
    cluster = cluster_of(2, "kind: leave, node: n1, at: 1500 ms")
    results = cluster.run([collects, trains])
    # Steps of 1 s; it is told in the second, sends that, and leaves. All of it travels for 0.1 s.
    assert results[0] == [(1, 1.1), (2, 2.1), ("left at step 2", 2.1)]
    assert isinstance(results[1], Left)
    assert outcome(cluster) == (None, {"n1": "left at step 2"})
    (row,) = cluster.faults.log.rows()
    assert row["spells_s"] == [[1.5, 2.0]], "until it had left"


def test_a_node_that_is_told_before_its_first_step_makes_that_one() -> None:
    assert run([collects, trains], "kind: leave, node: n1, at: 0 s")[0] == [(1, 1.1), ("left at step 1", 1.1)]


def test_whoever_sends_to_one_that_has_left_is_told() -> None:
    async def sends(node: Transport) -> str:
        with pytest.raises(PeerLost) as lost:
            while True:
                await node.compute(lambda: None, cost=FREE)
                await asyncio.sleep(0.5)
                await node.send(1, "t", None)
        return lost.value.reason

    assert run([sends, trains], "kind: leave, node: n1, at: 500 ms")[0] == "left at step 1"


def test_a_node_that_does_not_come_to_the_end_of_a_step_in_time_is_killed() -> None:
    async def long_step(node: Transport) -> None:
        await trains(node, 1, 60.0)

    cluster = cluster_of(2, "kind: leave, node: n1, at: 1 s, notice: 5 s")
    results = cluster.run([collects, long_step])
    words = "killed: told to leave, and not at the end of its step within 5 s"
    assert results[0] == [(words, pytest.approx(6.1))]
    assert outcome(cluster) == (None, {"n1": words})


def test_of_a_leave_and_a_crash_the_first_to_come_is_the_one_that_happens() -> None:
    faults = ["kind: leave, node: n1, at: 1500 ms", "kind: crash, node: n1, at: 1700 ms"]
    assert run([collects, trains], *faults)[0] == [(1, 1.1), ("crashed by the fault plan", 1.8)]
    late = "kind: crash, node: n1, at: 3 s"
    assert run([collects, trains], faults[0], late)[0][-1] == ("left at step 2", 2.1)


def test_the_next_life_of_a_node_that_was_told_to_leave_and_crashed_is_not_told() -> None:
    faults = ["kind: leave, node: n0, at: 500 ms", "kind: restart, node: n0, at: 700 ms, after: 300 ms"]
    cluster = cluster_of(2, *faults)
    cluster.run([trains, idle_for(1)])
    assert outcome(cluster) == (None, {})
    assert cluster.loop.time() == 11.0, "ten steps from 1 s on"


def test_if_everybody_leaves_the_run_has_failed() -> None:
    cluster = cluster_of(2, "kind: leave, node: n0, at: 0 s", "kind: leave, node: n1, at: 3500 ms")
    cluster.run([trains, idle_for(2)])
    assert outcome(cluster) == (None, {"n0": "left at step 1"}), "n1 had ended"
    cluster = cluster_of(2, "kind: leave, node: n0, at: 0 s", "kind: crash, node: n1, at: 1 s")
    cluster.run([trains, idle_for(2)])
    error, lost = outcome(cluster)
    assert isinstance(error, NobodyLeft)
    assert str(error) == "no node took part to the end: n1 crashed by the fault plan; n0 left at step 1"
    assert len(lost) == 2


# with an algorithm


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run of edp from which one worker leaves, and in which another joins late."""
    folder = tmp_path_factory.mktemp("join-leave") / "run"
    plan = {
        "topology": "thunderbolt-mesh-4",
        "algorithm": "edp",
        "workload": "quadratic",
        "stop": {"steps": 40},
        "faults": [
            {"kind": "leave", "node": "mini2", "at": "2 ms"},
            {"kind": "join", "node": "mini4", "at": "3 ms"},
        ],
    }
    simcluster.run(plan, out=folder, report=False)
    return load_run(folder)


def test_the_run_goes_on_without_who_left_and_with_who_joined(left: Any) -> None:
    summary = left.summary
    assert summary["status"] == "done"
    (reason,) = summary["lost"].values()
    assert list(summary["lost"]) == ["mini2"]
    step = int(reason.removeprefix("left at step "))
    assert 0 < step < 40
    pushes = {name: node["messages_sent"] for name, node in summary["nodes"].items() if name != "mini1"}
    assert pushes == {"mini2": step, "mini3": 40, "mini4": 40}
    assert summary["nodes"]["mini2"]["weights_sha256"], "it has handed in all of it"


def test_the_samples_of_who_left_are_used_up_to_its_last_step(left: Any) -> None:
    step = int(left.summary["lost"]["mini2"].removeprefix("left at step "))
    # Batches of 16: 40 of each of the three others.
    assert left.summary["samples"] == {"used": 16 * (3 * 40 + step), "lost": 0, "repeated": 0}


def test_the_same_plan_is_the_same_run(left: Any, tmp_path: Path) -> None:
    again = simcluster.run(left.config, out=tmp_path / "run", report=False)
    assert again.summary["trace_sha256"] == left.summary["trace_sha256"]


def test_a_step_that_nothing_asks_to_be_the_last_goes_on_without_a_word() -> None:
    async def steps() -> None:
        progress = Progress()
        progress.computes = False
        await progress.checkpoint(1)
        progress.is_to_leave = lambda: False
        await progress.checkpoint(2)
        progress.is_to_leave = lambda: True
        with pytest.raises(Left, match="left at step 3"):
            await progress.checkpoint(3)

    asyncio.run(steps())
