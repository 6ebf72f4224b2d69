"""Worlds over real nodes: what they crash, restart, freeze and cut, and what they cannot do there."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
import simpy

from simcluster.errors import WorldFailed
from simcluster.job import ClusterJob
from simcluster.runs.record import RunRecord
from simcluster.worlds import ClusterHandle, PlannedWorld, WorkerHandle
from tests.support.clusters import chain
from tests.support.socket_runs import Running

TOPOLOGY = chain(3)


def run_under(world: Any, folder: Path, wanted: list[tuple[int, str]], dead_s: float = 10.0) -> RunRecord:
    """Run nodes that tell rank 0 their lives until it has seen all that is *wanted*."""
    request = ClusterJob(
        TOPOLOGY.workers,
        json.dumps({"folder": str(folder), "wanted": wanted}),
        program="tests.support.node_programs:counts_lives",
        topology=TOPOLOGY,
        options={"heartbeat_s": 0.1, "dead_s": dead_s},
        worlds=(PlannedWorld(world.__name__, world),),
    )
    return Running(request).result()


def at_work(env: simpy.Environment, node: WorkerHandle) -> Any:
    """Wait until *node* has recorded two more steps."""
    first = node.step
    while node.step < first + 2:
        yield env.timeout(0.02)


@pytest.mark.slow
def test_a_node_that_a_world_crashes_comes_back_when_it_restarts_it(tmp_path: Path) -> None:
    seen: list[Any] = []

    def repairs(env: simpy.Environment, cluster: ClusterHandle) -> Any:
        node = cluster.node("n1")
        yield from at_work(env, node)
        node.crash(returns=True)
        seen.append((node.alive, node.ended))
        yield env.timeout(0.2)
        node.restart()
        while not node.alive:
            yield env.timeout(0.02)
        seen.append(env.now)

    record = run_under(repairs, tmp_path, [(1, "life 0"), (1, "life 1"), (2, "life 0")])
    assert record.error is None
    assert seen[0] == (False, False)
    assert [node.incarnation for node in record.nodes] == [0, 1, 0]
    (row,) = record.extra["faults"]
    assert (row["kind"], row["target"], row["plan"]["world"]) == ("restart", "n1", "repairs")
    ((crashed_s, restarted_s),) = row["spells_s"]
    assert 0.0 < crashed_s < restarted_s


def test_a_world_cuts_a_link_and_heals_it_freezes_a_node_and_thaws_it_and_crashes_it(tmp_path: Path) -> None:
    seen: list[Any] = []

    def storm(env: simpy.Environment, cluster: ClusterHandle) -> Any:
        node, link = cluster.node("n2"), cluster.link("n1-n2")
        yield from at_work(env, node)
        seen.append(link.bytes_sent > 0)
        link.cut()
        yield env.timeout(0.3)
        link.heal()
        yield from at_work(env, node)
        node.freeze()
        yield env.timeout(0.2)
        node.thaw()
        yield from at_work(env, node)
        node.crash()

    record = run_under(storm, tmp_path, [(1, "life 0"), (2, "life 0"), (2, "lost")])
    assert record.error is None
    assert seen == [True]
    assert record.extra["lost"] == {"n2": "crashed by the world storm"}
    assert [row["kind"] for row in record.extra["faults"]] == ["cut", "hang", "crash"]


@pytest.mark.slow
def test_a_cut_that_lasts_loses_the_nodes_that_it_separates_and_the_world_is_named(tmp_path: Path) -> None:
    def storm(env: simpy.Environment, cluster: ClusterHandle) -> Any:
        yield from at_work(env, cluster.node("n2"))
        cluster.link("n1-n2").cut()

    record = run_under(storm, tmp_path, [(1, "life 0"), (2, "life 0"), (2, "lost")], dead_s=2.0)
    assert record.error is None
    assert record.extra["lost"] == {"n2": "rank 0 (n0) is lost: out of reach for 2 s: cut off by the world storm"}


def test_nobody_waits_for_a_node_whose_world_has_ended_without_a_restart(tmp_path: Path) -> None:
    def forgets(env: simpy.Environment, cluster: ClusterHandle) -> Any:
        yield from at_work(env, cluster.node("n1"))
        cluster.node("n1").crash(returns=True)

    record = run_under(forgets, tmp_path, [(1, "life 0"), (1, "lost"), (2, "life 0")])
    assert record.error is None
    assert record.extra["lost"] == {"n1": "crashed by the world forgets with returns=True, and never restarted"}


def test_what_real_nodes_cannot_do_fails_the_run_at_the_line_of_the_world(tmp_path: Path) -> None:
    def hurries(env: simpy.Environment, cluster: ClusterHandle) -> Any:
        yield env.timeout(0.1)
        cluster.node("n1").speed = 2.0

    record = run_under(hurries, tmp_path, [(1, "never")])
    assert isinstance(record.error, WorldFailed)
    assert "test_real_worlds.py" in str(record.error)
    assert "slow by a world: found real nodes, expected crash, restart, freeze or cut" in str(record.error)


def test_a_world_that_holds_up_the_launcher_until_nodes_lose_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("simcluster_backends.sockets.launcher.worlds.HELD_SHARE", 0.01)  # of 10 s

    def sleeps(env: simpy.Environment, cluster: ClusterHandle) -> Any:
        yield env.timeout(0.1)
        time.sleep(0.2)
        yield env.timeout(0.1)

    record = run_under(sleeps, tmp_path, [(1, "never")])
    assert isinstance(record.error, WorldFailed)
    said = r"\(sleeps\): WorldStalled: 0\.\d s of real time without a yield; nodes lose a launcher .* for 10 s"
    assert re.search(said, str(record.error))


def test_a_world_that_never_lets_time_pass_fails_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simcluster_backends.common.worlds.limits.EVENTS_LIMIT", 3000)

    def stands_still(env: simpy.Environment, cluster: ClusterHandle) -> Any:
        while True:
            yield env.timeout(0)

    record = run_under(stands_still, tmp_path, [(1, "never")])
    assert isinstance(record.error, WorldFailed)
    where = r"the world failed at .*test_real_worlds\.py:\d+ \(stands_still\): "
    assert re.match(rf"{where}.*no time passes", str(record.error))
