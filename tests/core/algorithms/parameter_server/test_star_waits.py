"""A server and its workers in few waits, against one wait per message: equal times, bytes, records and weights."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from simcluster_backends.sim.cluster import SimCluster
from simcluster_backends.sim.faults import SimFaults
from simcluster_backends.sim.transport import SimTransport

from simcluster.algorithms.parameter_server.star import arrivals, ask
from simcluster.errors import PeerLost
from simcluster.payload import pack
from simcluster.topology import Device, Link, Node, Topology
from simcluster.transport import Transport
from tests.core.algorithms.trained import Trained, train
from tests.support.clusters import star, with_links
from tests.support.plans import plan

VERBS = ("ask", "gather", "send_each")


def one_by_one(run: Callable[[], Trained]) -> Trained:
    """Run with one wait per message."""
    with pytest.MonkeyPatch.context() as patched:
        for verb in VERBS:
            patched.delattr(SimTransport, verb)
        return run()


def same(topology: Topology, algorithm: str, **options: Any) -> Trained:
    def run() -> Trained:
        return train(algorithm, topology, steps=3, **options)

    found, expected = run(), one_by_one(run)
    assert [repr(result) for result in found.results] == [repr(result) for result in expected.results]
    assert found.digest == expected.digest
    for record, other in zip(found.records, expected.records, strict=True):
        assert repr(record) == repr(other)  # a loss may be nan
    for mine, others in zip(found.vectors, expected.vectors, strict=True):
        assert mine.is_meta or mine.equal(others)
    return found


def uneven(rates_Bps: list[float], latencies_s: list[float], flops_per_s: list[float]) -> Topology:
    names = [f"n{rank}" for rank in range(len(rates_Bps))]
    devices = [Device("device", speed, work_overhead_s=5e-5) for speed in flops_per_s]
    nodes = {name: Node(name, device) for name, device in zip(names, devices, strict=True)}
    ends = zip(names, rates_Bps, latencies_s, strict=True)
    return Topology("uneven", nodes | {"sw": Node("sw")}, tuple(Link(name, "sw", *link) for name, *link in ends))


def of_each(size: int, *values: float) -> st.SearchStrategy[list[float]]:
    """A value for each of *size* nodes: most often the same for all."""
    return st.sampled_from(values).map(lambda value: [value] * size) | st.lists(
        st.sampled_from(values), min_size=size, max_size=size
    )


Stars = st.integers(2, 7).flatmap(
    lambda size: st.builds(
        uneven, of_each(size, 1e6, 125e6, 12.3e6), of_each(size, 0.0, 25e-6, 1e-3), of_each(size, 1e9, 0.7e9, 1e6)
    )
)
Settings = st.sampled_from(
    [
        ("sync_ps", {}), ("sync_ps", {"pull_interval": 2}), ("sync_ps", {"server_trains": False}),
        ("sync_ps", {"timeout_s": 1e-3}), ("sync_ps", {"wait_for": 2}), ("sync_ps", {"polyak": 0.5}),
        ("sync_ps", {"wait_for": 2, "cancel_late": True}), ("k_sync", {}), ("k_sync", {"k": 2}),
        ("k_sync", {"k": 2, "batch": True}), ("k_async", {}), ("ssp", {}), ("softsync", {}),
        ("edp", {}), ("edp", {"pull_interval": 3}), ("edp", {"push": "weights", "pull_interval": 2}),
    ]
)  # fmt: skip


@pytest.mark.slow
@given(Stars, Settings, st.sampled_from(["real", "none"]))
def test_few_waits_change_nothing(star: Topology, algorithm: tuple[str, dict[str, Any]], numerics: str) -> None:
    name, settings = algorithm
    same(star, name, numerics=numerics, **settings)


@pytest.mark.slow
@given(
    st.sampled_from(["n0", "n2", "n3"]),
    st.floats(0.0, 8.0),
    st.sampled_from(["kind: crash", "kind: restart, after: 2 ms"]),
    Settings,
)
def test_losses_change_nothing(node: str, at_ms: float, kind: str, algorithm: tuple[str, dict[str, Any]]) -> None:
    name, settings = algorithm
    work = {f"n{rank}": Device("device", 1e15, work_overhead_s=1e-3) for rank in range(4)}
    fault = f"{kind}, node: {node}, at: {at_ms:.4f} ms"
    same(star(4, bandwidth_Bps=1e5, **work), name, faults=[fault], **settings)


@pytest.mark.parametrize("link", [{"duplex": "half"}, {"ack_share": 0.03}, {"loss": 0.1}, {"bandwidth_Bps": 0.3e6}])
def test_other_links_change_nothing(link: dict[str, Any]) -> None:
    same(with_links(star(5), **link), "sync_ps")


def test_workers_of_two_racks_change_nothing() -> None:
    nodes = {f"n{rank}": Node(f"n{rank}", Device("device", 1e9)) for rank in range(7)}
    racks = {name: Node(name) for name in ("left", "right")}
    links = [Link(f"n{rank}", "left" if rank < 4 else "right", 1e6, 1e-5) for rank in range(7)]
    same(Topology("racks", nodes | racks, (*links, Link("left", "right", 2e6, 1e-4))), "sync_ps")


async def cancelled_as_it_leaves(node: Transport) -> str:
    """Rank 0 cancels a question in the instant in which it leaves; the answer is there already."""
    if node.rank == 1:
        await node.send(0, "answer", None)
        await node.recv(0, "before")
        return (await node.recv(0, "question")).tag
    await asyncio.sleep(1.0)

    async def cancel() -> None:
        await node.send(1, "before", pack(torch.empty(1000)))
        asking.cancel()

    cancelling = asyncio.create_task(cancel())
    await asyncio.sleep(0)
    asking = asyncio.create_task(ask(node, 1, "question", None, "answer"))
    await asyncio.gather(cancelling, asking, return_exceptions=True)
    return f"{asking.cancelled()}, {(await node.recv(1, 'answer')).tag}"


async def cancelled_by_a_loss(node: Transport) -> list[str]:
    """Rank 0 cancels a wait for any rank in the instant in which it ends with the loss of rank 1."""
    if node.rank:
        await asyncio.sleep(10.0)

    async def cancel() -> None:
        with suppress(PeerLost):
            await node.recv(1, "its own")
        waiting.cancel()

    cancelling = asyncio.create_task(cancel())
    waiting = asyncio.create_task(arrivals(node, "any", 2))
    ends = await asyncio.gather(cancelling, waiting, return_exceptions=True)
    (after,) = await arrivals(node, "after", 1)
    return [repr(end) for end in (*ends, after)]


@pytest.mark.parametrize("body", [cancelled_as_it_leaves, cancelled_by_a_loss])
def test_cancelled_waits_lose_nothing(body: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def found() -> list[Any]:
        topology = star(2 if body is cancelled_as_it_leaves else 3)
        faults = SimFaults(plan(topology, "kind: crash, node: n1, at: 5 s"))
        return [repr(end) for end in SimCluster(topology, faults=faults).run([body] * len(topology.workers))]

    quick = found()
    for verb in VERBS:
        monkeypatch.delattr(SimTransport, verb)
    assert quick == found()
    assert "Lost" in quick[0] if body is cancelled_by_a_loss else quick == ["'True, answer'", "'question'"]
