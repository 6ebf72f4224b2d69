"""Faults of real nodes: what is refused, what nodes are ordered to do, and that no stopped process stays behind."""

from __future__ import annotations

import asyncio
import json
import time
from math import inf
from pathlib import Path
from typing import Any

import pytest
import torch
from simcluster_backends.common.verdict import Verdict
from simcluster_backends.sim.loop.event_loop import SimLoop
from simcluster_backends.sockets import run_cluster
from simcluster_backends.sockets.launcher.faults import LauncherFaults, check_faults, holds, resets, slow_spells
from simcluster_backends.sockets.launcher.node_handle import members_of
from simcluster_backends.sockets.node.cuts import CutFollower, follow_resets
from simcluster_backends.sockets.node.transport import SocketTransport
from simcluster_backends.sockets.wire.messages import CutOrder, HoldOrder, ResetOrder

from simcluster.errors import ENDED, PeerLost, UsageError
from simcluster.fault_plans.keys import KINDS
from simcluster.job import ClusterJob
from simcluster.transport import FREE
from tests.backends.common.test_verdict import peer_lost
from tests.support.clusters import chain
from tests.support.plans import plan
from tests.support.socket_cluster import run_bodies
from tests.support.socket_runs import Running, gone, pids_in

TOPOLOGY = chain(3)


def job(*faults: str, program: str = "forever", folder: Path | None = None, **settings: Any) -> ClusterJob:
    config = json.dumps({"folder": str(folder), "mark": "m"})
    return ClusterJob(
        TOPOLOGY.workers,
        config,
        program=f"tests.support.node_programs:{program}",
        topology=TOPOLOGY,
        faults=plan(TOPOLOGY, *faults),
        **settings,
    )


# what is refused


def test_what_real_nodes_cannot_do_is_refused_with_what_they_can() -> None:
    link = "link: n0-n1, at: 1 s"
    request = job(
        "kind: hang, node: n1, at: 1 s",
        f"kind: latency, {link}, add: 1 ms",
        f"kind: bandwidth, {link}, factor: 0.5",
        f"kind: loss, {link}, probability: 0.1",
        f"kind: flap, {link}, for: 1 s, period: 1 ms",
    )
    with pytest.raises(UsageError) as error:
        run_cluster(request)
    assert [(problem.key, problem.found) for problem in error.value.problems] == [
        ("faults[1].kind", "latency, which sockets cannot do"),
        ("faults[2].kind", "bandwidth, which sockets cannot do"),
        ("faults[3].kind", "loss, which sockets cannot do"),
    ]
    possible = "crash, restart, join, leave, hang, slow, cut, flap, partition or reset"
    assert all(possible in problem.expected for problem in error.value.problems)


def test_a_node_that_is_started_by_hand_cannot_be_made_to_hang_or_come_but_can_crash_and_leave() -> None:
    addresses: list[Any] = [None, ("10.0.0.2", 0), None]
    kinds = ("hang", "crash", "restart, after: 1 s", "leave", "join", "slow, factor: 2")
    problems = check_faults(job(*(f"kind: {kind}, node: n1, at: 1 s" for kind in kinds), addresses=addresses))
    assert [problem.key for problem in problems] == ["faults[0].node", "faults[2].node", "faults[4].node"]
    assert all("n1, which is started by hand" in problem.found for problem in problems)


def test_every_kind_is_either_done_or_refused() -> None:
    done = {"crash", "restart", "join", "leave", "hang", "slow", "cut", "flap", "partition", "reset"}
    keys = {"node": "n1", "link": "n0-n1", "groups": [["n0"], ["n1"]], "for": "1 s", "after": "1 s", "period": "1 ms"}
    keys |= {"add": "1 ms", "probability": 0.1}
    for name, kind in KINDS.items():
        spec = {key: value for key, value in keys.items() if key in kind.keys} | {"kind": name, "at": "1 s"}
        if "factor" in kind.keys:
            spec["factor"] = 2 if name == "slow" else 0.5
        request = ClusterJob(TOPOLOGY.workers, "{}", topology=TOPOLOGY, faults=plan(TOPOLOGY, spec))
        assert (check_faults(request) == []) == (name in done), name


# what nodes are ordered to do


def test_a_node_is_told_whom_not_to_write_to_and_whom_not_to_read_from() -> None:
    # n0-n1-n2: what n0 sends to the others crosses the first link, and so does what they send to it.
    both = job("kind: cut, link: n0-n1, at: 1 s, for: 2 s")
    assert holds(both, 0) == [HoldOrder([1, 2], True, True, [(1.0, 3.0)])]
    assert holds(both, 1) == [HoldOrder([0], True, True, [(1.0, 3.0)])]
    towards = job("kind: cut, link: n0-n1, towards: n1, at: 1 s, for: 2 s")
    assert holds(towards, 0) == [HoldOrder([1, 2], True, False, [(1.0, 3.0)])]
    assert holds(towards, 2) == [HoldOrder([0], False, True, [(1.0, 3.0)])]
    flap = job("kind: flap, link: n1-n2, at: 0 s, for: 1 s, period: 500 ms")
    assert holds(flap, 2) == [HoldOrder([0, 1], True, True, [(0.0, 0.25), (0.5, 0.75)])]
    parted = job("kind: partition, groups: [[n0], [n2]], at: 1 s")
    assert holds(parted, 1) == []
    assert holds(parted, 2) == [HoldOrder([0], True, True, [(1.0, inf)])]


def test_of_two_nodes_the_lower_rank_resets_their_connection_at_each_moment() -> None:
    request = job("kind: reset, groups: [[n0], [n1, n2]], at: 1 s, every: 500 ms, times: 3")
    assert resets(request, 0) == [ResetOrder([1, 2], [1.0, 1.5, 2.0])]
    assert resets(request, 1) == resets(request, 2) == []
    assert holds(request, 0) == []


def test_resets_are_carried_out_on_time_and_a_late_node_skips_those_before_it() -> None:
    loop = SimLoop()  # type: ignore[abstract]  # virtual seconds
    seen: list[tuple[float, int]] = []

    async def node() -> None:
        timers = follow_resets(
            [ResetOrder([1, 2], [1.0, 3.0])], reset=lambda peer: seen.append((loop.time(), peer)), at_s=2.0
        )
        await asyncio.sleep(10)
        assert len(timers) == 2

    loop.run_until_complete(node())
    loop.close()
    assert seen == [(1.0, 1), (1.0, 2)]


def test_a_node_is_told_its_own_slowness() -> None:
    request = job("kind: slow, node: n1, factor: 3, at: 1 s, for: 1 s", "kind: slow, node: n2, factor: 2, at: 1 s")
    assert slow_spells(request, 1) == [((1.0, 2.0), 3.0)]
    assert slow_spells(request, 0) == []


def test_orders_are_carried_out_on_time_and_a_cut_that_lasts_is_given_up_on() -> None:
    loop = SimLoop()  # type: ignore[abstract]  # virtual seconds: what is ordered is on the loop's clock
    seen: list[tuple[float, Any]] = []

    async def node() -> None:
        orders = [
            HoldOrder([1], True, True, [(1.0, 2.0), (4.0, inf)]),
            HoldOrder([1, 2], True, False, [(1.5, 3.0)]),
        ]
        cuts = CutFollower(
            5.0,
            hold=lambda *what: seen.append((loop.time(), what)),
            give_up=lambda *what: seen.append((loop.time(), what)),
        )
        cuts.follow(orders, "cut off")
        await asyncio.sleep(10)
        cuts.cancel()
        await asyncio.sleep(10)

    loop.run_until_complete(node())
    loop.close()
    assert seen == [
        (1.0, (1, True, True)),
        (1.5, (1, True, True)),
        (1.5, (2, True, False)),
        (2.0, (1, True, False)),
        (3.0, (1, False, False)),
        (3.0, (2, False, False)),
        (4.0, (1, True, True)),
        (9.0, (1, "cut off")),
    ]


def test_a_cut_without_a_known_end_holds_until_it_is_healed_unless_another_holds_still() -> None:
    loop = SimLoop()  # type: ignore[abstract]
    seen: list[tuple[float, Any]] = []

    async def node() -> None:
        cuts = CutFollower(
            5.0,
            hold=lambda *what: seen.append((loop.time(), what)),
            give_up=lambda *what: seen.append((loop.time(), what)),
        )
        cuts.follow([HoldOrder([1], True, True, [(1.0, 4.0)])], "cut off")
        await asyncio.sleep(2)
        cuts.begin(CutOrder(7, [HoldOrder([1], True, True, [])], "storm"))
        await asyncio.sleep(4.5)
        cuts.end(7)  # 4.5 s are not enough for a loss
        cuts.end(7)
        cuts.begin(CutOrder(8, [HoldOrder([1], True, True, [])], "storm"))
        await asyncio.sleep(10)

    loop.run_until_complete(node())
    loop.close()
    held = [(1.0, True), (2.0, True), (4.0, True), (6.5, False), (6.5, True)]
    assert seen == [*((at_s, (1, on, on)) for at_s, on in held), (11.5, (1, "storm"))]


def test_nothing_is_written_or_read_while_it_is_held_and_all_of_it_afterwards() -> None:
    async def holder(node: SocketTransport) -> list[Any]:
        await node.recv(1, "ready")
        node._member.hold(1, True, True)
        sends = [asyncio.create_task(node.send(1, "t", [torch.full((1000,), float(i))])) for i in range(5)]
        await node.send(2, "held", None)
        await node.recv(2, "sent")  # what 1 sent meanwhile has been handed to the system
        await asyncio.sleep(0.1)
        seen = [sum(send.done() for send in sends), node._inbox.mailbox.queued_bytes(1)]
        node._member.hold(1, False, False)
        await asyncio.gather(*sends)
        return [*seen, (await node.recv(1, "late"))["value"]]

    async def peer(node: SocketTransport) -> list[float]:
        await node.send(0, "ready", None)
        await node.recv(2, "held")
        await node.send(0, "late", 7)
        await node.send(2, "sent", None)
        return [float((await node.recv(0, "t")).tensor[0]) for _ in range(5)]

    async def witness(node: SocketTransport) -> None:
        await node.recv(0, "held")
        await node.send(1, "held", None)
        await node.recv(1, "sent")
        await node.send(0, "sent", None)

    results = run_bodies([holder, peer, witness])
    assert results == [[0, 0, 7], [0.0, 1.0, 2.0, 3.0, 4.0], None]


def test_a_peer_that_is_given_up_is_lost_on_both_sides() -> None:
    async def gives_up(node: SocketTransport) -> str:
        await node.recv(1, "ready")
        node._member.hold(1, True, True)
        node._member.give_up(1, "out of reach")
        with pytest.raises(PeerLost) as lost:
            await node.recv(1, "never")
        return lost.value.reason

    async def is_given_up(node: SocketTransport) -> bool:
        await node.send(0, "ready", None)
        with pytest.raises(PeerLost) as lost:
            await node.recv(0, "never")
        return lost.value.reason != ENDED

    assert run_bodies([gives_up, is_given_up]) == ["out of reach", True]


def test_work_on_a_slow_node_takes_so_many_times_as_long() -> None:
    async def body(node: SocketTransport) -> list[float]:
        for factor in (1.0, 4.0):
            node._member.device._slow = [((0.0, inf), factor)]
            await node.compute(lambda: time.sleep(0.05), cost=FREE)
        await asyncio.sleep(0)
        return [span.end_s - span.start_s for span in node.recorder.record.spans if span.kind == "compute"]

    ((plain_s, slow_s),) = run_bodies([body])
    assert slow_s >= 4 * 0.05
    assert plain_s >= 0.05


# what becomes of a run


@pytest.mark.slow
def test_a_stopped_process_is_lost_and_none_is_left_stopped(tmp_path: Path) -> None:
    options = {"heartbeat_s": 0.1, "dead_s": 3.0}
    running = Running(job("kind: hang, node: n1, at: 300 ms", folder=tmp_path, options=options))
    pids = pids_in(tmp_path, ["n0", "n1", "n2"])  # type: ignore[arg-type]
    record = running.result()
    assert isinstance(record.error, PeerLost)
    assert (record.error.rank, record.error.reason) == (1, "silent for 3 s: hung by the fault plan")
    assert [row["kind"] for row in record.extra["faults"]] == ["hang"]
    assert all(gone(pid) for pid in pids.values())


def test_a_node_that_has_ended_is_hit_by_nothing() -> None:
    hit: list[int] = []

    async def run() -> LauncherFaults:
        request = job("kind: crash, node: n0, at: 0 s", "kind: hang, node: n1, at: 0 s")
        members = members_of(request)
        members[0].gone = "crashed"
        faults = LauncherFaults(
            request, members, 1.0, signal=lambda member, name: hit.append(member.rank), bring=hit.append
        )
        faults.start()
        await asyncio.sleep(0.05)
        faults.cancel()
        return faults

    faults = asyncio.run(run())
    assert hit == [1]
    assert [row["target"] for row in faults.log.rows()] == ["n1"]


def test_what_began_after_the_end_of_all_nodes_did_not_happen() -> None:
    loop = SimLoop()  # type: ignore[abstract]  # virtual seconds

    async def run() -> LauncherFaults:
        request = job("kind: crash, node: n0, at: 1 s", "kind: crash, node: n1, at: 2 s")
        faults = LauncherFaults(
            request, members_of(request), 5.0, signal=lambda member, name: None, bring=lambda rank: None
        )
        faults.start()
        await asyncio.sleep(3)
        return faults

    faults = loop.run_until_complete(run())
    loop.close()
    assert [row["target"] for row in faults.rows(1.5, {})] == ["n0"]
    assert [row["target"] for row in faults.rows(0.5, {"n1"})] == ["n1"], "it was lost, after all had trained"


@pytest.mark.parametrize("kind", ["crash", "restart, after: 9 s"])
def test_a_stopped_process_that_crashes_is_lost_to_the_crash(kind: str) -> None:
    async def run() -> LauncherFaults:
        request = job("kind: hang, node: n1, at: 0 s, for: 2 s", f"kind: {kind}, node: n1, at: 1 s")
        faults = LauncherFaults(
            request, members_of(request), 5.0, signal=lambda member, name: None, bring=lambda rank: None
        )
        hang, crash = request.faults
        faults.begin(hang)
        assert not faults.is_crashed(1)
        faults.begin(crash)
        faults.end(hang)
        return faults

    assert asyncio.run(run()).planned == {1: "crashed by the fault plan"}


def parted(a: int, b: int) -> bool:
    return {a, b} == {0, 2}


def test_the_verdict_on_two_who_were_parted_is_clean_if_anybody_ended_well() -> None:
    verdict = Verdict(list("abc"), cut_off=parted)
    verdict.failed(2, peer_lost(0))
    assert not verdict.has_failed
    assert verdict.error is not None, "nobody has ended well yet"
    verdict.ended_well()
    assert verdict.error is None
    assert list(verdict.lost) == ["c"]


def test_the_verdict_on_whoever_fails_without_being_parted_is_the_cut() -> None:
    verdict = Verdict(list("abc"), cut_off=parted)
    verdict.failed(2, peer_lost(0))
    verdict.failed(1, peer_lost(0))
    verdict.failed(0, peer_lost(2))
    assert verdict.has_failed
    assert isinstance(verdict.error, PeerLost)
    assert verdict.error.rank == 2, "as rank 0 says, whoever reports first"
    assert verdict.lost == {}
