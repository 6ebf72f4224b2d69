"""A few seeds of the real swarm hold what docs/faults.md promises; what it draws, and that its checks can fail."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from simcluster_backends.sockets import generate_key, write_key

from simcluster.algorithms import ALGORITHMS
from simcluster.errors import UsageError
from simcluster.experiment import read_experiment
from tests.support.socket_runs import free_port, wait_for
from tools.swarm_real.checks import check_end
from tools.swarm_real.draw import AS_FAULT, FROM_OUTSIDE, PLANNED, draw
from tools.swarm_real.happened import as_played
from tools.swarm_real.launcher import Launcher
from tools.swarm_real.play import Lived
from tools.swarm_real.telling import told
from tools.swarm_real.trial import Launchers, try_seed

SEEDS = (1, 6, 21)
"""A kill and a short stop of a run that forms its group again; a request to leave; see the test of them."""


@pytest.fixture(scope="module")
def launchers() -> Iterator[Launchers]:
    found = Launchers()
    yield found
    found.close()


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_promised_is_held_on_real_processes(seed: int, launchers: Launchers, tmp_path: Path) -> None:
    verdict = try_seed(seed, tmp_path / "seed", launchers)
    assert not verdict.refused
    assert verdict.happened
    assert not verdict.broken, "\n".join(told(verdict))


def test_every_algorithm_and_every_kind_of_disturbance_is_drawn_and_can_be_run() -> None:
    drawn = [draw(seed) for seed in range(200)]
    assert drawn == [draw(seed) for seed in range(200)]
    assert {one.case.algorithm for one in drawn} == set(ALGORITHMS)
    assert {fault["kind"] for one in drawn for fault in one.case.faults} == set(PLANNED)
    assert {act.kind for one in drawn for act in one.acts} == set(FROM_OUTSIDE) == set(AS_FAULT)
    assert {len(one.case.workers) for one in drawn} == {2, 3, 4}
    assert all(one.case.faults or one.acts for one in drawn)
    refused = 0
    for one in drawn[: len(ALGORITHMS)]:  # one of each
        try:
            read_experiment(one.case.document)
        except UsageError:
            refused += 1
    assert refused <= 1


def test_an_act_that_met_a_node_is_judged_as_the_fault_that_does_the_same(tmp_path: Path) -> None:
    drawn = next(one for one in map(draw, range(200)) if [act.kind for act in one.acts] == ["kill"])
    (act,) = drawn.acts
    for done, gone in (([act], {act.node}), ([], set())):
        _, hits = as_played(replace(drawn, case=drawn.case.with_faults([])), Lived(tmp_path, done=done))
        assert hits.gone == gone


def test_a_node_that_fails_the_run_because_it_joined_late_is_judged_as_a_late_join(tmp_path: Path) -> None:
    cases = (one for one in map(draw, range(200)) if "min_workers" in one.case.options)
    drawn = next(one for one in cases if len(one.case.workers) > 2)
    told = {"type": "PeerLost", "message": "rank 1 (n1) is lost: joined too late"}
    nodes = {"n0": {}, "n1": {}, "n2": {"incarnation": 1}}
    (tmp_path / "summary.json").write_text(json.dumps({"status": "failed", "nodes": nodes, "error": told}))
    played, _ = as_played(replace(drawn, case=drawn.case.with_faults([])), Lived(tmp_path))
    assert [row["plan"]["node"] for row in played.happened if row["kind"] == "join"] == ["n1", "n2"]


def test_a_command_that_does_not_end_or_leaves_something_breaks_a_promise(tmp_path: Path) -> None:
    assert [name for name, _ in check_end(Lived(tmp_path, code=None))] == ["a run ends"]
    (tmp_path / "summary.json").write_text('{"status": "failed"}')
    assert list(check_end(Lived(tmp_path, code=1))) == []
    broken = [name for name, _ in check_end(Lived(tmp_path, code=0, left=["process 1"]))]
    assert broken == ["nothing is left behind", "the exit code is that of the outcome"]


def test_a_process_of_a_command_is_found_when_it_is_left(tmp_path: Path) -> None:
    launcher, key = Launcher(stays=False), tmp_path / "key"
    write_key(key, generate_key())
    launcher.begin(["node", "a", "--join", f"127.0.0.1:{free_port()}", "--key-file", str(key)], tmp_path / "said", {})
    wait_for(launcher.left)  # it looks for its launcher for a minute
    launcher.close()
    assert not launcher.left()
