"""Worlds in virtual time, against hand arithmetic. Links of 1 MB/s and 50 ms, so that a route takes 100 ms."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import simpy
import torch

from simcluster.errors import Deadlock, NeverFinished, PeerLost, WorldFailed
from simcluster.fault_plans.kinds import Fault, Flap
from simcluster.transport import Transport
from simcluster.worlds import ClusterHandle
from tests.support.plans import plan
from tests.support.world_runs import WorldFunction, WorldRun, links, now, run_under, works

MB = torch.zeros(250_000)


async def sends(node: Transport) -> float:
    await node.send(1, "t", [MB])
    return now()


async def receives(node: Transport) -> float:
    await node.recv(0, "t")
    return now()


async def waits_for_ever(node: Transport) -> None:
    await node.recv(1 - node.rank, "never sent")


async def waits_for_a_loss(node: Transport) -> tuple[float, str]:
    try:
        await node.recv(1 - node.rank, "never sent")
    except PeerLost as lost:
        return now(), lost.reason
    return now(), ""


# a message and a piece of work, changed on the way


def test_a_message_takes_the_bandwidth_that_the_world_sets_while_it_is_in_flight() -> None:
    def world(env: simpy.Environment, cluster: ClusterHandle) -> Any:
        link = cluster.link("sw-n0")
        yield env.timeout(0.5)
        link.bandwidth_Bps = 0.5e6
        assert (link.bandwidth_Bps, link.latency_s, link.loss, link.bytes_sent) == (0.5e6, 0.05, 0.0, 0)
        yield env.timeout(0.5)
        link.cut()
        yield env.timeout(1.0)
        link.heal()

    # 0.5 MB by 0.5 s, 0.25 MB by 1 s, none until 2 s, and 0.25 MB in 0.5 s.
    done = run_under([sends, receives], world)
    assert done.results == [2.5, pytest.approx(2.6)]
    assert done.happened == [("bandwidth", "n0-sw", (0.5, None)), ("cut", "n0-sw", (1.0, 2.0))]


def test_a_piece_of_work_takes_the_speed_that_the_world_sets_while_it_is_done() -> None:
    def world(env: simpy.Environment, cluster: ClusterHandle) -> Any:
        node = cluster.node("n0")
        yield env.timeout(0.5)
        node.speed = 0.5
        yield env.timeout(0.5)
        node.freeze()
        yield env.timeout(1.0)
        node.thaw()
        assert node.speed == 0.5
        node.speed = 2.0

    # 0.5 s of work by 0.5 s, 0.25 s by 1 s, none until 2 s, and 0.25 s at twice the speed.
    done = run_under([works(1.0)], world)
    assert done.results == [pytest.approx(2.125, abs=1e-12)]
    assert [row[0] for row in done.happened] == ["slow", "hang", "slow"]


def test_factors_of_two_worlds_and_of_a_plan_multiply_and_latencies_add() -> None:
    def half(env: simpy.Environment, cluster: ClusterHandle) -> Any:
        cluster.link("n0-sw").bandwidth_Bps = 0.5e6
        cluster.link("n0-sw").latency_s = 0.15
        yield env.timeout(0.0)

    done = run_under(
        [sends, receives], half, half,
        faults=plan(links(), "kind: bandwidth, link: n0-sw, factor: 0.5, at: 0 s"),
    )  # fmt: skip
    # 1 MB at an eighth of 1 MB/s; then 50 ms and twice 100 ms on one link, and 50 ms on the other.
    assert done.results == [8.0, pytest.approx(8.3)]


def test_what_a_world_reads_and_sets_again_is_its_own_number() -> None:
    def slows(env: simpy.Environment, cluster: ClusterHandle) -> Any:
        cluster.node("n0").speed = 0.5
        yield env.timeout(0.0)

    def restores(env: simpy.Environment, cluster: ClusterHandle) -> Any:
        node = cluster.node("n0")
        yield env.timeout(0.1)
        before = node.speed
        node.freeze()
        node.speed *= 0.1
        assert (before, node.speed) == (1.0, 0.1)
        node.thaw()
        yield env.timeout(1.0)
        node.speed = before

    # 0.05 s of work by 0.1 s, 0.05 s by 1.1 s, and 0.9 s at half of the speed.
    for worlds in ((slows, restores), (restores, slows)):
        assert run_under([works(1.0)], *worlds).results == [pytest.approx(2.9, abs=1e-9)]


def test_the_later_number_of_one_world_for_a_direction_replaces_the_earlier() -> None:
    def world(env: simpy.Environment, cluster: ClusterHandle) -> Any:
        link, up = cluster.link("n0-sw"), cluster.link("n0-sw", towards="sw")
        link.bandwidth_Bps = 0.5e6
        up.bandwidth_Bps = 0.5e6
        yield env.timeout(1.0)
        up.bandwidth_Bps = 0.25e6
        assert (link.bandwidth_Bps, cluster.link("n0-sw", towards="n0").bandwidth_Bps) == (0.25e6, 0.5e6)
        yield env.timeout(1.0)
        link.bandwidth_Bps = 1e6

    # 0.5 MB by 1 s, 0.25 MB by 2 s, and 0.25 MB in 0.25 s.
    done = run_under([sends, receives], world)
    assert done.results[0] == 2.25
    spells = [(row["plan"].get("towards"), row["spells_s"]) for row in done.rows]
    assert spells == [(None, [[0.0, 1.0]]), ("n0", [[1.0, 2.0]]), ("sw", [[1.0, 2.0]])]


def test_latencies_of_worlds_add_up_in_any_order() -> None:
    def sets(latency_s: float) -> WorldFunction:
        def world(env: simpy.Environment, cluster: ClusterHandle) -> Any:
            cluster.link("n0-sw").latency_s = latency_s
            yield env.timeout(0.0)

        return world

    # 50 ms, twice 50 ms less and 150 ms more; 50 ms on the other link.
    for order in ((0.0, 0.0, 0.2), (0.2, 0.0, 0.0)):
        assert run_under([sends, receives], *map(sets, order)).results[1] == pytest.approx(1.15)


def test_traffic_shares_a_link_until_it_stops() -> None:
    def world(env: simpy.Environment, cluster: ClusterHandle) -> Any:
        traffic = cluster.traffic("n0", "n1")
        yield env.timeout(1.0)
        traffic.stop()

    # Half of the link for 1 s, then all of it for 0.5 MB.
    done = run_under([sends, receives], world)
    assert done.results[0] == 1.5
    assert done.happened == [("traffic", "n0 to n1", (0.0, 1.0))]


def test_the_log_lists_the_first_acts_and_counts_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simcluster.fault_plans.log.MOST_ENTRIES", 3)

    def world(env: simpy.Environment, cluster: ClusterHandle) -> Any:
        for number in range(5):
            cluster.node("n0").speed = 2.0 + number
            yield env.timeout(0.01)

    done = run_under([works(1.0)], world)
    assert [row["plan"]["factor"] for row in done.rows] == [1 / 2, 1 / 3, 1 / 4]
    assert done.left_out == 2


# the fault plan as worlds


def enacts(faults: tuple[Fault, ...]) -> WorldFunction:
    """Return a world that does what the plan *faults* says."""

    def begin_and_end(cluster: ClusterHandle, spec: dict[str, Any]) -> tuple[Callable[[], Any], Callable[[], Any]]:
        if "link" in spec:
            link = cluster.link(spec["link"], spec.get("towards"))
            if spec["kind"] in ("cut", "flap"):
                return link.cut, link.heal
            name = {"bandwidth": "bandwidth_Bps", "latency": "latency_s", "loss": "loss"}[spec["kind"]]
            before = getattr(link, name)
            value = {
                "bandwidth": lambda: before * spec["factor"],
                "latency": lambda: before + 0.2,
                "loss": lambda: spec["probability"],
            }[spec["kind"]]
            return lambda: setattr(link, name, value()), lambda: setattr(link, name, before)
        node = cluster.node(spec["node"])
        return {
            "crash": (node.crash, node.crash),
            "restart": (lambda: node.crash(returns=True), node.restart),
            "hang": (node.freeze, node.thaw),
            "slow": (lambda: setattr(node, "speed", 1 / spec["factor"]), lambda: setattr(node, "speed", 1.0)),
        }[spec["kind"]]

    def process(env: simpy.Environment, cluster: ClusterHandle, fault: Fault) -> Any:
        begin, end = begin_and_end(cluster, dict(fault.spec))
        for start_s, end_s in fault.spells:
            yield env.timeout(start_s - env.now)
            begin()
            yield env.timeout(end_s - start_s)
            end()

    def world(env: simpy.Environment, cluster: ClusterHandle) -> Any:
        for fault in faults:
            env.process(process(env, cluster, fault))
        yield env.timeout(0)

    return world


async def talks(node: Transport) -> list[Any]:
    """Work, send to and receive from the peer ten times; note times and losses."""
    found: list[Any] = []
    for _ in range(10):
        await works(0.3)(node)
        for sends in (True, False):
            try:
                await (node.send(1 - node.rank, "t", [MB[:50_000]]) if sends else node.recv(1 - node.rank, "t"))
            except PeerLost as lost:
                found.append(lost.reason.replace("the world world", "the fault plan"))
                await asyncio.sleep(0.1)
            found.append(now())
    return found


def spelt(done: WorldRun) -> list[tuple[Any, ...]]:
    """Return the faults that happened; a flap of a world is one cut for each spell."""
    found = [(row[0].replace("flap", "cut"), row[1], spell) for row in done.happened for spell in row[2:]]
    return sorted(found, key=lambda row: (row[2][0], row[0]))


@pytest.mark.parametrize(
    "faults",
    [
        ["kind: cut, link: n0-sw, at: 0.5 s, for: 1 s"],
        ["kind: cut, link: n0-sw, at: 0.5 s, for: 5 s"],  # exactly dead_s: no node is lost
        ["kind: cut, link: n0-sw, at: 0.5 s, for: 6 s"],
        ["kind: cut, link: n0-sw, towards: sw, at: 0.5 s, for: 6 s"],
        ["kind: flap, link: n1-sw, at: 0.45 s, for: 3 s, period: 0.5 s, down: 0.4"],
        ["kind: crash, node: n1, at: 1.1 s"],
        ["kind: restart, node: n1, at: 1.1 s, after: 0.7 s"],
        ["kind: hang, node: n0, at: 0.4 s, for: 2 s"],
        ["kind: hang, node: n0, at: 0.4 s, for: 9 s"],
        ["kind: slow, node: n1, factor: 3, at: 0.1 s, for: 1 s", "kind: hang, node: n1, at: 0.2 s, for: 1 s"],
        ["kind: bandwidth, link: n0-sw, factor: 0.3, at: 0.35 s, for: 1 s"],
        ["kind: latency, link: n0-sw, add: 200 ms, at: 0.35 s, for: 1 s"],
        ["kind: loss, link: n0-sw, probability: 0.1, at: 0.35 s, for: 2 s"],
    ],
)  # fmt: skip
def test_a_fault_plan_and_the_same_acts_of_a_world_are_one_run(faults: list[str]) -> None:
    planned = plan(links(), *faults)
    by_plan = run_under([talks, talks], faults=planned)
    by_world = run_under([talks, talks], enacts(planned))
    assert not any(isinstance(fault, Flap) for fault in planned) or len(spelt(by_plan)) == 6
    for of_world, of_plan in zip(by_world.results, by_plan.results, strict=True):
        if isinstance(of_plan, list):
            assert len(of_world) == len(of_plan)
            assert [each if isinstance(each, str) else pytest.approx(each, abs=1e-9) for each in of_plan] == of_world
        else:
            assert type(of_world) is type(of_plan)
    assert spelt(by_world) == [
        (kind, target, (pytest.approx(start_s), end_s if end_s is None else pytest.approx(end_s)))
        for kind, target, (start_s, end_s) in spelt(by_plan)
    ]


# what something else has taken down


def test_a_world_may_crash_and_freeze_a_node_that_is_down_already() -> None:
    def first(env: simpy.Environment, cluster: ClusterHandle) -> Any:
        yield env.timeout(0.5)
        cluster.node("n0").crash(returns=True)
        yield env.timeout(3.0)
        cluster.node("n0").restart()

    def second(env: simpy.Environment, cluster: ClusterHandle) -> Any:
        node = cluster.node("n0")
        yield env.timeout(1.0)
        node.crash()
        node.crash(returns=True)
        node.freeze()
        yield env.timeout(1.0)
        node.restart()
        assert not node.alive
        yield env.timeout(2.0)
        node.thaw()
        assert node.alive

    # Down from 0.5 to 3.5 s, then 1 s of work from the beginning.
    done = run_under([works(1.0)], first, second)
    assert done.results == [4.5]
    assert done.happened == [("restart", "n0", (0.5, 3.5))]


# deadlock


def test_a_world_that_ticks_for_ever_hides_no_deadlock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simcluster_backends.common.worlds.limits.EVENTS_LIMIT", 300)

    def ticks(env: simpy.Environment, cluster: ClusterHandle) -> Any:
        while True:
            yield env.timeout(1.0)
            cluster.link("n0-sw").bandwidth_Bps = 1e6 / (1 + env.now)

    with pytest.raises(Deadlock, match=r"no node has gone on in 300 events of the world\n  rank 0 .* recv"):
        run_under([waits_for_ever, waits_for_ever], ticks)


def test_a_node_that_its_world_never_restarts_is_named_with_the_world() -> None:
    def forgets(env: simpy.Environment, cluster: ClusterHandle) -> Any:
        yield env.timeout(0.5)
        cluster.node("n1").crash(returns=True)

    said = r"deadlock at 1 s: n1, crashed by the world forgets with returns=True, and never restarted$"
    with pytest.raises(Deadlock, match=said):
        run_under([works(1.0), works(1.0)], forgets)


def test_a_world_that_restarts_a_node_for_ever_ends_the_run_unless_steps_are_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("simcluster_backends.sim.worlds.runner.RESTARTS_LIMIT", 10)

    def storm(env: simpy.Environment, cluster: ClusterHandle) -> Any:
        while True:
            yield env.timeout(0.5)
            cluster.node("n0").crash(returns=True)
            cluster.node("n0").restart()

    async def steps(node: Transport) -> None:
        for step in range(1, 13):
            await works(0.75)(node)
            node.record(step=step)

    # The tenth restart is at 5 s; n1 makes 12 steps in 9 s and ends, and n0 crashes 18 times by then.
    with pytest.raises(NeverFinished, match=r"no end of a node in 10 restarts by the world at 5 s\n  rank 0 \(n0\) .*"):
        run_under([works(1.0), works(100.0)], storm)
    assert len(run_under([works(1.0), steps], storm).rows) == 18


def test_a_link_that_the_world_will_heal_is_no_deadlock_even_after_a_year() -> None:
    year_s = 365 * 86400.0

    def world(env: simpy.Environment, cluster: ClusterHandle) -> Any:
        cluster.link("n0-sw").cut()
        yield env.timeout(year_s)
        cluster.link("n0-sw").heal()

    done = run_under([sends, receives], world, dead_s=1e9)
    assert done.results[0] == year_s + 1.0


def test_the_reason_of_a_loss_names_the_world() -> None:
    def storm(env: simpy.Environment, cluster: ClusterHandle) -> Any:
        yield env.timeout(2.0)
        assert [node.alive for node in cluster.nodes] == [True, True]
        cluster.node("n1").crash()
        assert [(node.alive, node.ended) for node in cluster.nodes] == [(True, False), (False, False)]

    done = run_under([waits_for_a_loss, waits_for_ever], storm)
    assert done.results[0] == (pytest.approx(2.1), "crashed by the world storm")


# a world's own mistakes


def twice(env: simpy.Environment, cluster: ClusterHandle) -> Any:
    cluster.node("n1").crash()
    yield env.timeout(1.0)
    cluster.node("n1").crash()


def negative(env: simpy.Environment, cluster: ClusterHandle) -> Any:
    yield env.timeout(1.0)
    cluster.link("n0-sw").bandwidth_Bps = -1.0


def misspelt(env: simpy.Environment, cluster: ClusterHandle) -> Any:
    yield env.timeout(1.0)
    cluster.link("n0-sv").cut()


def far(env: simpy.Environment, cluster: ClusterHandle) -> Any:
    yield env.timeout(1.0)
    cluster.link("n0-sw").latency_s = 1e300


def narrow(env: simpy.Environment, cluster: ClusterHandle) -> Any:
    yield env.timeout(1.0)
    cluster.link("n0-sw").bandwidth_Bps = 1e-300


def lossy(env: simpy.Environment, cluster: ClusterHandle) -> Any:
    yield env.timeout(1.0)
    cluster.link("n0-sw").loss = 0.91


def foreign(env: simpy.Environment, cluster: ClusterHandle) -> Any:
    yield simpy.Environment().timeout(1.0)


def deep(env: simpy.Environment, cluster: ClusterHandle) -> Any:
    def inner() -> Any:
        yield env.timeout(1.0)
        raise LookupError("inner")

    yield env.process(inner())


def forgets_an_attribute(env: simpy.Environment, cluster: ClusterHandle) -> Any:
    yield env.timeout(1.0)
    cluster.node("n0").sped = 0.5  # type: ignore[attr-defined]


def takes_from_nothing(env: simpy.Environment, cluster: ClusterHandle) -> Any:
    yield env.timeout(1.0)
    next(iter([]))


def leaves(env: simpy.Environment, cluster: ClusterHandle) -> Any:
    yield env.timeout(1.0)
    raise GeneratorExit


def goes_on_whatever_happens(env: simpy.Environment, cluster: ClusterHandle) -> Any:
    yield env.timeout(1.0)
    while True:
        with suppress(Exception):
            while True:
                pass


def spins(env: simpy.Environment, cluster: ClusterHandle) -> Any:
    yield env.timeout(1.0)
    while True:
        pass


def spins_on_one_line(env: simpy.Environment, cluster: ClusterHandle) -> Any:
    yield env.timeout(1.0)
    while True: pass  # noqa: E701  # fmt: skip


def stands_still(env: simpy.Environment, cluster: ClusterHandle) -> Any:
    while True:
        yield env.timeout(0.0)


@pytest.mark.parametrize(
    ("world", "said"),
    [
        (twice, r"n1, which is down already: crashed by the world twice"),
        (negative, r"bandwidth_Bps of n0-sw: found -1\.0, expected a number above 0"),
        (far, r"latency_s of n0-sw: found 1e\+300, expected a quantity from 1e-18 to 1e\+30 in its base unit"),
        (narrow, r"bandwidth_Bps of n0-sw: found 1e-300, expected a quantity from 1e-18 to 1e\+30 in its base unit"),
        (lossy, r"loss of n0-sw: found 0\.91, expected a number from 0, the topology's, to 0\.9 \(each further try"),
        (misspelt, r"unknown link 'n0-sv'; did you mean 'n0-sw'\?"),
        (forgets_an_attribute, r"no attribute 'sped'"),
        (takes_from_nothing, r"generator raised StopIteration"),
        (leaves, r"GeneratorExit"),
        (goes_on_whatever_happens, r"10,000 lines without a yield"),
        (foreign, r"yielded an event of another environment"),
        (deep, r"LookupError: inner"),
        (spins, r"10,000 lines without a yield"),
        (spins_on_one_line, r"10,000 lines without a yield"),
        (stands_still, r"10,000 events at 0 s, and no time passes"),
    ],
)
def test_a_wrong_world_fails_the_run_in_one_sentence_with_its_file_and_line(
    world: WorldFunction, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("LINES_LIMIT", "EVENTS_LIMIT"):
        monkeypatch.setattr(f"simcluster_backends.common.worlds.limits.{limit}", 10_000)
    with pytest.raises(WorldFailed, match=rf"^the world failed at .*test_worlds\.py:\d+ \(\w+\): .*{said}") as failed:
        run_under([works(1e4), works(1e4)], world)
    assert "simcluster_backends" not in failed.value.details
    assert f"in {world.__name__}" in failed.value.details or world in (spins, spins_on_one_line)


# determinism


def test_random_streams_depend_on_the_seed_and_the_name_alone() -> None:
    drawn: list[list[float]] = []

    def draws(env: simpy.Environment, cluster: ClusterHandle) -> Any:
        drawn.append([])
        for name in ("storm", "crew", "storm"):
            yield env.timeout(0.1)
            drawn[-1].append(cluster.rng(name).random())

    for seed in (1, 1, 2):
        run_under([works(1.0)], draws, seed=seed)
    assert drawn[0] == drawn[1]
    assert len({*drawn[0], *drawn[2]}) == 6
