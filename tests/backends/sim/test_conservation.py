"""No byte is lost without a name: the check that every run ends with, and how it fails."""

from __future__ import annotations

import asyncio

import pytest
from simcluster_backends.sim.cluster import SimCluster
from simcluster_backends.sim.faults import SimFaults
from simcluster_backends.sim.transit import Transit

from simcluster.errors import PeerLost, RunError
from simcluster.payload import Message
from simcluster.transport import Transport
from tests.support.clusters import star
from tests.support.plans import plan


async def _talks(node: Transport) -> None:
    other = 1 - node.rank
    for number in range(5):
        async with asyncio.TaskGroup() as group:
            group.create_task(node.send(other, "t", number))
            group.create_task(node.recv(other, "t"))


def test_a_stream_that_swallows_a_message_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def swallow(transit: Transit, message: Message) -> None:
        transit.receiver.inbox.put(message)
        transit.under_way_B -= message.size_bytes
        transit.arrived_B += message.size_bytes if message["value"] != 3 else 0

    monkeypatch.setattr(Transit, "_arrive", swallow)
    with pytest.raises(AssertionError, match=r"n0 sent \d+ B to rank 1, and \d+ B are accounted for"):
        SimCluster(star(2)).run([_talks, _talks])


def test_bytes_that_nobody_sent_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = SimCluster(star(3))
    cluster.streams.of(0, 2).transit.arrived_B = 7
    with pytest.raises(AssertionError, match="bytes that no node sent"):
        cluster.run([_talks, _talks, _nothing])


async def _nothing(node: Transport) -> None:
    await asyncio.sleep(0)


def test_what_a_dead_receiver_does_not_get_is_dropped_by_its_fault() -> None:
    async def sender(node: Transport) -> None:
        for number in range(100):
            await node.send(1, "t", number)
            await asyncio.sleep(0.01)

    async def receiver(node: Transport) -> None:
        while True:
            await node.recv(0, "t")

    topology = star(2, latency_s=0.05)
    faults = SimFaults(plan(topology, "kind: crash, node: n1, at: 505 ms"))
    cluster = SimCluster(topology, faults=faults)
    results = cluster.run([sender, receiver])
    assert isinstance(results[0], PeerLost)
    # A message every 10 ms, 0.1 s on its way: those of 0.41 s and later find a dead node. The news is there at 0.605,
    # so the one of 0.6 s is the last, the 61st. At 0.61 s, when the next is refused, those up to 0.51 s have arrived.
    record = cluster.members[0].recorder.record
    transit = cluster.streams.of(0, 1).transit
    (row,) = faults.log.rows()
    assert record.sent_to[1][0] == 61
    assert transit.dropped_B == row["dropped_bytes"] == 11 / 61 * record.bytes_sent
    assert transit.under_way_B == 9 / 61 * record.bytes_sent
    assert cluster.members[1].recorder.record.bytes_received == transit.arrived_B


def test_a_deadlock_under_faults_is_still_a_deadlock() -> None:
    async def waits(node: Transport) -> None:
        await node.recv(1 - node.rank, "never")

    topology = star(2)
    cluster = SimCluster(topology, faults=SimFaults(plan(topology, "kind: cut, link: n0-sw, at: 1 s, for: 1 s")))
    with pytest.raises(RunError, match="deadlock at 2 s"):
        cluster.run([waits, waits])
