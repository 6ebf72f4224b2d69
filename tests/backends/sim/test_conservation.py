"""No byte is lost without a name: the check that every run ends with, how it fails, and swarms of faults under it."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simcluster_backends.sim.cluster import SimCluster
from simcluster_backends.sim.faults import SimFaults
from simcluster_backends.sim.transit import Transit

from simcluster.algorithms import ALGORITHMS
from simcluster.errors import PeerLost, RunError
from simcluster.payload import Message
from simcluster.topology import Topology
from simcluster.topology.model.conditions import Jitter
from simcluster.transport import Transport
from simcluster.workloads import quadratic
from tests.support.clusters import chain, outcome, star
from tests.support.plans import plan

WORKLOAD, STEPS, SPAN_S = quadratic(features=6, batch_size=4, dtype="float64"), 10, 0.012


def _rough(topology: Topology) -> Topology:
    """The same with all that may be in a message's way."""
    links = tuple(replace(link, jitter=Jitter(2e-4), loss=0.02) for link in topology.links)
    effects = {"send_overhead_s": 2e-5, "recv_overhead_s": 3e-5, "send_buffer_bytes": 100}
    nodes = {name: replace(node, **effects) for name, node in topology.nodes.items()}  # type: ignore[arg-type]
    return replace(topology, links=links, nodes=nodes, network="lv08")


TOPOLOGIES = [
    star(4, bandwidth_Bps=1e6, latency_s=1e-4),
    chain(3, bandwidth_Bps=1e6, latency_s=1e-4),
    star(3, latency_s=0.0),
    star(2, duplex="half"),
    _rough(star(3, bandwidth_Bps=1e6, latency_s=1e-4)),
    _rough(chain(3, bandwidth_Bps=1e6, latency_s=1e-4)),
]
ALGORITHMS_AND_SETTINGS: list[tuple[str, dict[str, Any]]] = [
    ("sync_ps", {}),
    ("sync_ps", {"timeout_s": 0.002}),
    ("edp", {}),
    ("edp", {"pull_interval": 3, "max_staleness": 2}),
    ("all_reduce_dp", {}),
    ("all_reduce_dp", {"schedule": "naive", "initial_weights": "broadcast"}),
    ("streaming_diloco", {"interval": 2, "overlap": 1}),
    ("fedbuff", {"interval": 2, "max_staleness": 1}),
    ("easgd", {"interval": 2, "form": "round_robin"}),
]


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


# swarms: any faults at all, together


def _times(low: float, high: float) -> st.SearchStrategy[str]:
    return st.floats(low, high).map(lambda time_s: f"{time_s:.6f} s")


class Swarm(NamedTuple):
    """A topology by its number, one to four faults on it, and settings of the cluster; inboxes of 0 bytes ask first."""

    topology: int
    faults: list[dict[str, Any]]
    dead_s: float
    inbox_bytes: int | None


@st.composite
def swarms(draw: st.DrawFn) -> Swarm:
    number = draw(st.integers(0, len(TOPOLOGIES) - 1))
    topology = TOPOLOGIES[number]
    nodes, links = st.sampled_from(topology.workers), st.sampled_from(topology.links)
    at, lasts = _times(0, SPAN_S), _times(1e-5, 2 * SPAN_S)
    faults = []
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(sorted(_DRAWN)))
        fault: dict[str, Any] = {"kind": kind, "at": draw(at)}
        if kind in ("crash", "restart", "hang", "slow"):
            fault["node"] = draw(nodes)
        elif kind == "partition":
            members = draw(st.permutations(topology.workers))
            cut = draw(st.integers(1, len(members) - 1))
            fault["groups"] = [members[:cut], members[cut:]]
        else:
            link = draw(links)
            fault["link"] = link.name
            if draw(st.booleans()) and (kind, link.duplex) != ("bandwidth", "half"):
                fault["towards"] = draw(st.sampled_from([link.a, link.b]))
        fault |= {key: draw(values) for key, values in _DRAWN[kind].items()}
        if kind in ("crash", "restart"):
            pass
        elif kind == "flap" or draw(st.booleans()):
            fault["for"] = draw(lasts)
            if kind != "flap" and draw(st.booleans()):
                fault |= {"every": draw(_times(1e-4, SPAN_S / 2)), "times": draw(st.integers(2, 4))}
        faults.append(fault)
    return Swarm(number, faults, draw(st.sampled_from([1e-3, 1e-2, 1.0])), draw(st.sampled_from([None, 0, 200])))


_DRAWN: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "crash": {},
    "restart": {"after": _times(1e-5, SPAN_S)},
    "hang": {},
    "slow": {"factor": st.floats(1.5, 20)},
    "cut": {},
    "flap": {"period": _times(SPAN_S / 100, SPAN_S / 5), "down": st.floats(0.1, 0.9)},
    "partition": {},
    "latency": {"add": _times(1e-5, SPAN_S / 5)},
    "bandwidth": {"factor": st.floats(0.001, 0.9)},
    "loss": {"probability": st.floats(0.001, 0.3)},
}


def _run(algorithm: str, keys: dict[str, Any], swarm: Swarm) -> tuple[Any, list[str]]:
    topology = TOPOLOGIES[swarm.topology]
    faults = SimFaults(plan(topology, *swarm.faults), swarm.dead_s)
    cluster = SimCluster(topology, 1, faults=faults, inbox_bytes=swarm.inbox_bytes)

    async def body(node: Transport) -> None:
        try:
            await ALGORITHMS[algorithm](node, WORKLOAD.replica(node.rank, node.size, 1, STEPS), **keys)
        except BaseExceptionGroup as group:
            error: BaseException = group
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            raise error from None

    cluster.run([body] * len(cluster.members))
    return outcome(cluster), [node.recorder.finish(None, 0.0).digest for node in cluster.members]


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "keys"), ALGORITHMS_AND_SETTINGS, ids=lambda value: str(value))
@settings(max_examples=15, deadline=None)
@given(swarm=swarms())
def test_whatever_happens_a_run_ends_well_or_with_a_typed_loss_and_every_byte_is_accounted_for(
    algorithm: str, keys: dict[str, Any], swarm: Swarm
) -> None:
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("asyncio").addHandler(handler)
    try:
        (error, _), digests = _run(algorithm, keys, swarm)
    finally:
        logging.getLogger("asyncio").removeHandler(handler)
    assert error is None or type(error) is PeerLost
    assert said == [], "no callback failed, and no exception was left unseen"
    (again, _), same = _run(algorithm, keys, swarm)
    assert (str(again), same) == (str(error), digests), "and the same once more"


def test_a_deadlock_under_faults_is_still_a_deadlock() -> None:
    async def waits(node: Transport) -> None:
        await node.recv(1 - node.rank, "never")

    topology = star(2)
    cluster = SimCluster(topology, faults=SimFaults(plan(topology, "kind: cut, link: n0-sw, at: 1 s, for: 1 s")))
    with pytest.raises(RunError, match="deadlock at 2 s"):
        cluster.run([waits, waits])
