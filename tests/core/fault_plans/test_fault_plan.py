"""Faults planned from Python: every run inside the block has them, and no run outside of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import simcluster
from simcluster.errors import PeerLost, UsageError
from simcluster.fault_plans.keys import KINDS
from simcluster.fault_plans.plan import planned

EXPERIMENT: dict[str, Any] = {
    "topology": "thunderbolt-mesh-4",
    "algorithm": "edp",
    "workload": "quadratic",
    "stop": {"steps": 30},
}


def test_runs_inside_the_block_have_the_faults_and_others_do_not(tmp_path: Path) -> None:
    with simcluster.faults() as plan:
        plan.crash("mini3", at_s=0.002)
        with_fault = simcluster.run(EXPERIMENT, out=tmp_path / "a", report=False)
    without = simcluster.run(EXPERIMENT, out=tmp_path / "b", report=False)
    assert with_fault.summary["lost"] == {"mini3": "crashed by the fault plan"}
    assert "lost" not in without.summary
    assert with_fault.config["faults"] == [{"kind": "crash", "node": "mini3", "at": "0.002 s"}]


def test_blocks_add_up_with_each_other_and_with_the_experiment() -> None:
    own = [{"kind": "crash", "node": "mini4", "at": "1 s"}]
    with simcluster.faults() as outer:
        outer.hang("mini2", at_s=1.0)
        with simcluster.faults() as inner:
            inner.slow("mini3", factor=2, at_s=0.0)
            read = simcluster.experiment.read_experiment({**EXPERIMENT, "faults": own}, faults=planned())
        assert [fault["kind"] for fault in planned()] == ["hang"]
    assert planned() == []
    assert [fault.kind for fault in read.faults] == ["crash", "hang", "slow"]


def test_every_kind_can_be_planned_and_means_what_the_file_means() -> None:
    with simcluster.faults() as plan:
        plan.crash("mini1", at_s=0.1)
        plan.restart("mini1", at_s=0.1, after_s=1.5)
        plan.leave("mini1", at_s=0.1, notice_s=2.0)
        plan.join("mini1", at_s=0.1)
        plan.hang("mini1", at_s=0.1, for_s=1.0)
        plan.slow("mini1", factor=3, at_s=0.1)
        plan.cut("mini1-mini2", at_s=0.1, for_s=1.0, towards="mini2")
        plan.flap("mini1-mini2", at_s=0.1, for_s=1.0, period_s=0.25)
        plan.partition(["mini1"], ["mini2", "mini3"], at_s=0.1)
        plan.reset(["mini1"], ["mini2", "mini3"], at_s=0.1)
        plan.latency("mini1-mini2", add_s=0.02, at_s=0.1)
        plan.bandwidth("mini1-mini2", factor=0.5, at_s=0.1)
        plan.loss("mini1-mini2", probability=0.01, at_s=0.1)
        found = simcluster.experiment.read_experiment(EXPERIMENT, faults=planned()).faults
    assert {fault.kind for fault in found} == set(KINDS)
    begun = [fault.spells[0][fault.kind == "join"] for fault in found]  # a join is for how long it is not there
    assert begun == [0.1] * len(found), "0.1 s is the float 0.1"
    file = [
        {"kind": "restart", "node": "mini1", "at": "0.1 s", "after": "1.5 s"},
        {"kind": "cut", "link": "mini1-mini2", "towards": "mini2", "at": "0.1 s", "for": "1 s"},
    ]
    assert simcluster.experiment.read_experiment({**EXPERIMENT, "faults": file}).faults == (found[1], found[6])


def test_what_is_wrong_with_a_plan_says_where_it_came_from(tmp_path: Path) -> None:
    with simcluster.faults() as plan:
        plan.crash("mini9", at_s=1.0)
        with pytest.raises(UsageError, match=r"faults\[0\].node \(set by simcluster.faults\(\)\).*did you mean"):
            simcluster.run(EXPERIMENT, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_block_that_is_left_by_an_error_leaves_no_fault_behind(tmp_path: Path) -> None:
    with pytest.raises(PeerLost), simcluster.faults() as plan:
        plan.crash("mini1", at_s=0.001)
        simcluster.run(EXPERIMENT, out=tmp_path / "run", report=False)
    assert planned() == []
