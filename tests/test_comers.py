"""Real nodes that come back, join late and leave: by the plan, and by hand."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from backends.sockets import generate_key, write_key
from simcluster.experiment.job import ClusterJob
from simcluster.results.record import RunRecord
from tests.clusters import chain
from tests.plans import plan
from tests.socket_runs import Running, free_port, hand_started, pids_in, wait_for

TOPOLOGY = chain(4)
OPTIONS = {"heartbeat_s": 0.1, "dead_s": 10.0}


def job(folder: Path, wanted: list[tuple[int, str]], *faults: str, **settings: Any) -> ClusterJob:
    config = json.dumps({"folder": str(folder), "wanted": wanted})
    return ClusterJob(
        settings.pop("names", TOPOLOGY.workers),
        config,
        program="tests.node_programs:counts_lives",
        topology=TOPOLOGY,
        faults=plan(TOPOLOGY, *faults),
        options=OPTIONS | settings.pop("options", {}),
        **settings,
    )


def seen_by_0(record: RunRecord) -> list[list[Any]]:
    assert record.error is None, record.error
    assert record.nodes[0].weights_sha256 is not None
    found: list[list[Any]] = json.loads(record.nodes[0].weights_sha256)
    return found


WANTED = [(1, "life 0"), (1, "life 1"), (1, "lost"), (2, "life 1"), (3, "left"), (3, "life 0")]


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    """A run in which n1 is restarted, n2 joins late and n3 leaves."""
    request = job(
        tmp_path_factory.mktemp("lives"),
        WANTED,
        "kind: restart, node: n1, at: 300 ms, after: 100 ms",
        "kind: join, node: n2, at: 400 ms",
        "kind: leave, node: n3, at: 500 ms",
    )
    return Running(request).result(90.0)


def test_by_the_plan_a_node_comes_back_another_joins_late_and_a_third_leaves(planned: RunRecord) -> None:
    assert seen_by_0(planned) == [list(pair) for pair in WANTED]
    assert [node.weights_sha256 for node in planned.nodes[1:]] == ["life 1", "life 1", "left in life 0"]
    assert [node.incarnation for node in planned.nodes] == [0, 1, 1, 0]


def test_who_came_back_or_joined_is_not_lost_and_who_left_is_with_its_step(planned: RunRecord) -> None:
    (reason,) = planned.extra["lost"].values()
    assert list(planned.extra["lost"]) == ["n3"]
    assert reason == f"left at step {planned.nodes[3].steps}"


def test_the_record_of_one_that_came_back_has_both_of_its_lives(planned: RunRecord) -> None:
    lives = [metric.value for metric in planned.nodes[1].metrics if metric.name == "incarnation"]
    assert sorted(set(lives)) == [0.0, 1.0]
    assert lives == sorted(lives)
    # A message for every metric; of the last ones before it was killed the launcher may not have heard.
    assert planned.nodes[1].sent_to[0][0] >= lives.count(1.0) + 1
    first_s = next(metric.time_s for metric in planned.nodes[1].metrics if metric.value == 1.0)
    assert first_s >= 0.4, "its clock is the run's"


def test_the_log_of_faults_has_all_three(planned: RunRecord) -> None:
    rows = {row["kind"]: row["spells_s"] for row in planned.extra["faults"]}
    assert list(rows) == ["join", "restart", "leave"]
    ((_, left_s),) = rows["leave"]
    assert left_s < 30.0, "it did not take all of its notice"


def test_by_hand_a_node_joins_late_is_killed_comes_back_and_leaves(tmp_path: Path) -> None:
    key, key_file = generate_key(), tmp_path / "cluster.key"
    write_key(key_file, key)
    rendezvous = f"127.0.0.1:{free_port()}"
    wanted = [(2, "life 1"), (2, "lost"), (2, "life 2"), (2, "left")]
    options = {"rendezvous": rendezvous, "key_file": str(key_file), "min_workers": 2}
    addresses: list[Any] = [None, None, ("127.0.0.1", 0)]
    request = job(tmp_path, wanted, names=["n0", "n1", "n2"], options=options, addresses=addresses)
    running = Running(request)
    pids_in(tmp_path, ["n0", "n1"])  # type: ignore[arg-type]

    def pid_of(process: subprocess.Popen[bytes]) -> int:
        file = tmp_path / "n2.pid"
        return int(wait_for(lambda: file.exists() and file.read_text() == str(process.pid) and file.read_text()))

    with hand_started("n2", rendezvous, key_file) as first:
        os.kill(pid_of(first), signal.SIGKILL)
        first.wait()
    with hand_started("n2", rendezvous, key_file) as second:
        os.kill(pid_of(second), signal.SIGTERM)
        assert second.wait(60) == 0, second.stdout and second.stdout.read()
    record = running.result(60.0)
    assert seen_by_0(record) == sorted(list(pair) for pair in [(1, "life 0"), *wanted])
    assert record.nodes[2].weights_sha256 == "left in life 2"
    assert record.extra["lost"] == {"n2": f"left at step {record.nodes[2].steps}"}
