"""Resets in virtual time, against hand arithmetic. Links of 1 MB/s and 50 ms: a round trip takes 0.2 s."""

from __future__ import annotations

import asyncio

import pytest
from simcluster_backends.sim.cluster import SimCluster
from simcluster_backends.sim.faults import SimFaults

from simcluster.transport import Transport
from tests.backends.sim.test_sim_faults import links, receives, run, sends
from tests.support.clusters import complete
from tests.support.plans import plan


def test_a_message_in_flight_at_a_reset_arrives_one_round_trip_and_one_latency_after_it() -> None:
    # It leaves at 0 and would arrive at 0.1: 0.06 + 0.2 + 0.1.
    async def sender(node: Transport) -> None:
        await node.send(1, "t", 1)

    assert run([sender, receives()], "kind: reset, groups: [[n0], [n1]], at: 60 ms")[1] == [
        pytest.approx(0.36, abs=1e-9)
    ]


def test_a_flow_stands_still_for_one_round_trip_and_goes_on_where_it_was() -> None:
    # 1 s for the bytes, 0.2 s for each of three resets, and 0.1 s to arrive.
    reset = "kind: reset, groups: [[n0], [n1]], at: 100 ms, every: 300 ms, times: 3"
    sent_s, (arrived_s,) = run([sends(), receives()], reset)
    assert (sent_s, arrived_s) == (pytest.approx(1.6, abs=1e-9), pytest.approx(1.7, abs=1e-9))


def test_a_stream_that_begins_while_its_nodes_connect_again_waits_and_other_pairs_do_not() -> None:
    async def sender(node: Transport) -> None:
        await asyncio.sleep(0.5)
        await asyncio.gather(node.send(1, "t", 1), node.send(2, "t", 1))

    # Reset at 0.4, connected at 0.6.
    results = run([sender, receives(), receives()], "kind: reset, groups: [[n0], [n1]], at: 400 ms")
    assert results[1:] == [[pytest.approx(0.7, abs=1e-9)], [pytest.approx(0.6, abs=1e-9)]]


def test_routes_of_different_lengths_connect_again_after_their_own_round_trip() -> None:
    # n0-n1 takes 10 ms, n0-n2 40 ms: reset at 1 s, messages leave at 1.02 and 1.08 and arrive at 1.03 and 1.12.
    async def sender(node: Transport) -> None:
        await asyncio.sleep(1.001)
        await asyncio.gather(node.send(1, "t", 1), node.send(2, "t", 1))

    topology = complete({(0, 1): 0.01, (0, 2): 0.04, (1, 2): 1.0})
    results = run([sender, receives(), receives()], "kind: reset, groups: [[n0], [n1, n2]], at: 1 s", topology=topology)
    assert results[1:] == [[pytest.approx(1.03, abs=1e-9)], [pytest.approx(1.12, abs=1e-9)]]


def test_a_reset_loses_nobody_and_drops_nothing_however_long_the_round_trip() -> None:
    topology = links(latency_s=5.0)
    cluster = SimCluster(
        topology, 0, faults=SimFaults(plan(topology, "kind: reset, groups: [[n0], [n1]], at: 500 ms"), dead_s=0.5)
    )
    sent_s, arrived_s = cluster.run([sends(), receives()])
    # 1 s for the bytes, 20 s for the round trip, 10 s to arrive.
    assert (sent_s, arrived_s) == (21.0, [31.0])
    (row,) = cluster.faults.log.rows()
    assert (row["kind"], row["target"], row["spells_s"], row["dropped_bytes"]) == ("reset", "n0 | n1", [[0.5, 0.5]], 0)
