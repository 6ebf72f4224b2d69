"""Nodes of one machine share its cores: threads by equal time, bytes as two threads. One core does 1 GFLOP a second."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import torch
from simcluster_backends.sim import run_bodies

from simcluster.topology import Topology, describe, loads
from simcluster.transport import Cost, Transport

SECOND = Cost(1e9)


def machine(cores: int, **keys: Any) -> Topology:
    """Three nodes of one machine, joined by links of 1 GB/s without latency."""
    node = {"flops": "1 GFLOP/s", "machine": "m", **keys}
    ends = [("a", "b"), ("a", "c"), ("b", "c")]
    links = [{"between": list(pair), "bandwidth": "1 GB/s", "latency": "0 s", "duplex": "full"} for pair in ends]
    nodes = {name: dict(node) for name in "abc"}
    return loads({"machines": {"m": {"cores": cores}}, "nodes": nodes, "links": links})


def now_s() -> float:
    return asyncio.get_running_loop().time()


async def compute(node: Transport) -> float:
    await node.compute(int, cost=SECOND)
    return now_s()


@pytest.mark.parametrize(("cores", "took_s"), [(1, 3.0), (2, 1.5), (3, 1.0), (8, 1.0)])
def test_three_threads_on_k_cores_take_three_kths_of_their_time_but_no_less_than_it(cores: int, took_s: float) -> None:
    assert run_bodies([compute] * 3, machine(cores)) == [pytest.approx(took_s, rel=1e-9)] * 3


def test_a_thread_that_ends_leaves_its_cores_to_the_others() -> None:
    async def less(node: Transport) -> float:
        await node.compute(int, cost=Cost(0.5e9))
        return now_s()

    # One core: half a second each for two, at 1/2 until 1.0; the other then has half a second of work left.
    ends = run_bodies([less, compute, _nothing], machine(1))
    assert ends == [pytest.approx(1.0, rel=1e-9), pytest.approx(1.5, rel=1e-9), 0.0]


@pytest.mark.slow
@pytest.mark.parametrize(("cores", "took_s"), [(1, 3.0), (2, 1.5), (3, 1.0)])
def test_bytes_between_nodes_of_a_machine_keep_two_of_its_threads_busy(cores: int, took_s: float) -> None:
    async def sends(node: Transport) -> float:
        await asyncio.gather(node.send(1, "t", torch.zeros(250_000_000)), node.compute(int, cost=SECOND))
        return now_s()

    async def receives(node: Transport) -> float:
        await node.recv(0, "t")
        return now_s()

    # 1 GB at 1 GB/s is a second of two threads, and the piece of work one of a third: 3 core seconds in all.
    ends = run_bodies([sends, receives, _nothing], machine(cores))
    assert ends == [pytest.approx(took_s, rel=1e-9)] * 2 + [0.0]


@pytest.mark.parametrize(("cores", "took_s"), [(1, 2.0), (2, 1.0)])
def test_overheads_are_handled_one_after_another_by_the_same_cores(cores: int, took_s: float) -> None:
    async def sends(node: Transport) -> None:
        await asyncio.gather(*(node.send(1, "t", None) for _ in range(10)))

    async def receives(node: Transport) -> float:
        for _ in range(10):
            await node.recv(0, "t")
        return now_s()

    # Ten overheads of 0.1 s in the sender are a second of one thread, next to a second of work on the third node.
    ends = run_bodies([sends, receives, compute], machine(cores, send_overhead="100 ms"))
    assert ends[1:] == [pytest.approx(took_s, rel=1e-9)] * 2


def test_cancelled_work_gives_its_share_back() -> None:
    async def cancels(node: Transport) -> float:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(node.compute(int, cost=SECOND), 1.0)
        return now_s()

    # One core for two until 1.0, when half of the other's second is done; the rest takes 0.5 s alone.
    ends = run_bodies([cancels, compute, _nothing], machine(1))
    assert ends == [1.0, pytest.approx(1.5, rel=1e-9), 0.0]


def test_nodes_of_two_machines_do_not_share() -> None:
    document = dict(machine(1).document)
    document["machines"] = {name: {"cores": 1} for name in "xyz"}
    document["nodes"] = {
        name: {"flops": "1 GFLOP/s", "machine": other} for name, other in zip("abc", "xyz", strict=True)
    }
    assert run_bodies([compute] * 3, loads(document)) == [1.0] * 3


async def _nothing(node: Transport) -> float:
    return now_s()


def waking(cores: int, **keys: Any) -> Topology:
    return loads(machine(cores, **keys).document | {"machines": {"m": {"cores": cores, "wakeup": "100 ms"}}})


@pytest.mark.parametrize(
    ("cores", "ends_s"),
    [
        # From 0.6 both share the core: a has 0.4 s left, and ends at 1.4. Its event loop waits, since b still works.
        (1, [1.5, 1.6]),
        (2, [1.05, 1.15]),  # half of the cores have work when b wakes up and when a ends: half of the wait
    ],
)
def test_a_thread_that_wakes_up_waits_by_the_share_of_cores_that_have_work(cores: int, ends_s: list[float]) -> None:
    async def later(node: Transport) -> float:
        await asyncio.sleep(0.5)
        await node.compute(int, cost=Cost(0.6e9))
        return now_s()

    found = run_bodies([compute, later, _nothing], waking(cores))
    assert found == [pytest.approx(end_s, rel=1e-9) for end_s in ends_s] + [0.0]


@pytest.mark.parametrize(("cores", "came_s"), [(1, 0.3), (2, 0.15)])
def test_a_message_that_wakes_an_event_loop_waits_by_the_share_of_cores_that_have_work(
    cores: int, came_s: float
) -> None:
    async def sends(node: Transport) -> float:
        await node.send(2, "t", None)
        return now_s()

    async def receives(node: Transport) -> float:
        await node.recv(1, "t")
        return now_s()

    # One core: 0.1 s until the event loop runs, and then 0.1 s of overhead at half speed.
    ends = run_bodies([compute, sends, receives], waking(cores, recv_overhead="100 ms"))
    assert ends[2] == pytest.approx(came_s, abs=1e-6)


def test_the_wait_is_described() -> None:
    assert "m: 2 cores, shared by a, b, c; a thread waits 100 ms for a busy one" in describe(waking(2))
    assert "a thread waits" not in describe(machine(2))
