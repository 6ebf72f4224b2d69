"""Times of messages between two machines with two cables, by each rule, by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
import simpy
import torch
from simcluster_backends.sim.cluster import SimCluster
from simcluster_backends.sim.faults import SimFaults
from simcluster_backends.sim.plain_flows import finish_times

from simcluster.errors import UsageError
from simcluster.lm.plan.times import hop_s
from simcluster.topology import Topology
from simcluster.topology.plain_flows import PlainFlow
from simcluster.transport import Transport
from simcluster.worlds import ClusterHandle
from tests.core.topology.test_parallel_links import ETHERNET, THUNDERBOLT, loads, macs
from tests.support.plans import plan
from tests.support.world_runs import run_under

SMALL, BIG = 1_000, 1_000_000

# 1 MB/s after 1 ms, and 10 MB/s after 4 ms.
TIMES = [
    ("shortest", {}, 0.002, 1.001),
    ("address", {"a": "10.0.0.1"}, 0.0041, 0.104),
    (["a-b#2"], {}, 0.0041, 0.104),
    (["a-b#1"], {}, 0.002, 1.001),
    ("size", {}, 0.002, 0.104),
    # 11 MB/s together, and the later latency.
    ("stripe", {}, 0.004 + 1e3 / 11e6, 0.004 + 1e6 / 11e6),
]


def arrivals(topology: Topology, sizes: Sequence[int], *faults: str, seed: int = 0) -> list[float]:
    """The times at which messages of *sizes* bytes arrive, each sent when the one before it has left."""

    async def sends(node: Transport) -> None:
        for size in sizes:
            await node.send(1, "t", torch.zeros(size // 4))

    async def receives(node: Transport) -> list[float]:
        times = []
        for _ in sizes:
            await node.recv(0, "t")
            times.append(asyncio.get_running_loop().time())
        return times

    cluster = SimCluster(topology, seed, faults=SimFaults(plan(topology, *faults, seed=seed)))
    results: list[Any] = cluster.run([sends, receives])
    over = cluster.members[0].recorder.record.sent_over.get(1)
    assert (over is not None) == (topology.parallel == "size")
    return list(results[1])


@pytest.mark.parametrize(("rule", "addresses", "small_s", "big_s"), TIMES)
def test_a_message_takes_the_time_of_the_links_that_the_rule_chooses(
    rule: Any, addresses: dict[str, str], small_s: float, big_s: float
) -> None:
    topology = loads(macs(rule, **addresses))
    for size, time_s in ((SMALL, small_s), (BIG, big_s)):
        assert arrivals(topology, [size]) == pytest.approx([time_s], rel=1e-12)
        assert hop_s(topology, "a", "b", size) == pytest.approx(time_s, rel=1e-12)
        assert finish_times(topology, [PlainFlow("b", "a", size)]) == pytest.approx([time_s], rel=1e-12)


def test_by_size_messages_stay_in_order_and_are_counted_on_their_links() -> None:
    # The big one leaves at 0.1 s and arrives at 0.104; the small one leaves at 0.101 over the nearer
    # link, and would arrive at 0.102, but does not overtake.
    assert arrivals(loads(macs("size")), [BIG, SMALL]) == pytest.approx([0.104, 0.104], rel=1e-12)


def test_flows_by_different_links_do_not_share_bandwidth() -> None:
    # Both ways of a half-duplex link share it; the small message back is on the other link.
    half = [link | {"duplex": "half"} for link in (ETHERNET, THUNDERBOLT)]
    flows = [PlainFlow("a", "b", BIG), PlainFlow("b", "a", SMALL)]
    assert finish_times(loads(macs("size", *half)), flows) == pytest.approx([0.104, 0.002], rel=1e-12)


def test_a_fault_of_one_link_slows_what_it_carries() -> None:
    # Half of link 2: a stripe of 10/11 is then twice as slow; by size only large messages are slower.
    half = "kind: bandwidth, link: a-b#2, at: 0 s, for: 9 s, factor: 0.5"
    later = "kind: latency, link: a-b#1, at: 0 s, for: 9 s, add: 10 ms"
    assert arrivals(loads(macs("stripe")), [BIG], half) == pytest.approx([0.004 + 2e6 / 11e6], rel=1e-9)
    assert arrivals(loads(macs("stripe")), [BIG], later) == pytest.approx([0.011 + 1e6 / 11e6], rel=1e-9)
    assert arrivals(loads(macs("size")), [BIG], half) == pytest.approx([0.204], rel=1e-9)
    assert arrivals(loads(macs("size")), [SMALL], half) == pytest.approx([0.002], rel=1e-9)


@pytest.mark.parametrize(
    ("rule", "of_links"),
    # Headers are small; a stripe of 1/11 is 90,909 B.
    [("shortest", (1_001_000, 0)), ("size", (1_000, 1_000_000)), ("stripe", (91_000, 910_000))],
)
def test_a_world_names_each_link_and_reads_the_bytes_that_it_has_carried(rule: str, of_links: tuple[int, int]) -> None:
    read: dict[str, int] = {}

    def world(env: simpy.Environment, cluster: ClusterHandle) -> Any:
        with pytest.raises(UsageError, match=r"expected one of a-b#1 and b-a#2: several links join these nodes"):
            cluster.link("a-b")
        yield env.timeout(5.0)
        read.update({name: cluster.link(name).bytes_sent for name in ("b-a#1", "b-a#2")})
        assert [link.bytes_sent for link in cluster.links] == [*read.values()]

    async def sends(node: Transport) -> None:
        for size in (SMALL, BIG):
            await node.send(1, "t", torch.zeros(size // 4))

    async def receives(node: Transport) -> None:
        for _ in range(2):
            await node.recv(0, "t")
        await asyncio.sleep(10.0)

    run_under([sends, receives], world, topology=loads(macs(rule)))
    assert [*read.values()] == pytest.approx(of_links, abs=400)


def test_a_stripe_within_one_machine_keeps_its_cores_as_busy_as_one_link_of_the_same_bandwidth() -> None:
    # Two cores copy 11 MB/s, each byte twice: as fast as both links together.
    document = macs("stripe", ETHERNET, THUNDERBOLT)
    document["machines"] = {"m": {"cores": 2}}
    for node in document["nodes"].values():
        node["machine"] = "m"
    assert arrivals(loads(document), [BIG]) == pytest.approx([0.004 + 1e6 / 11e6], rel=1e-9)


def test_the_jitter_of_a_stripe_is_that_of_its_last_part() -> None:
    # Uniform jitter of 0 to 2 ms on the nearer link ends before the other's 4 ms.
    near = ETHERNET | {"jitter": {"kind": "uniform", "mean": "1 ms"}}
    late = THUNDERBOLT | {"jitter": {"kind": "uniform", "mean": "1 ms"}}
    for seed in range(3):
        still_s = arrivals(loads(macs("stripe", near, THUNDERBOLT)), [BIG], seed=seed)
        assert still_s == pytest.approx([0.004 + 1e6 / 11e6], rel=1e-12)
    assert arrivals(loads(macs("stripe", near, late)), [BIG])[0] > 0.004 + 1e6 / 11e6
