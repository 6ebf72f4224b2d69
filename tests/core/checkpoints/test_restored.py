"""Lost runs that are restored: from which checkpoint, and which faults are past. The swarm checks their bits."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

import pytest

import simcluster
from simcluster.algorithms import ALGORITHMS
from simcluster.algorithms.facts import facts_of
from simcluster.checkpoints.manifest import Cut, Manifest, RankEntry, config_sha256
from simcluster.checkpoints.store import Store, checkpoints
from simcluster.errors import CheckpointError, CheckpointWarning, PeerLost
from simcluster.experiment.checkpointing import last_complete
from simcluster.experiment.read.read import read_experiment
from simcluster.experiment.restarts import Restarts
from simcluster.fault_plans.kinds import Crash, Fault, Hang, Join, Slow, Spell, faults_to_come
from simcluster.fault_plans.kinds import Cut as LinkCut
from simcluster.job import ClusterJob
from simcluster.runs.record import NodeRecord, RunRecord
from tests.support.kept import play

SLOW_STAR = {
    "name": "star",
    "nodes": {f"n{i}": {"device": "raspberry-pi-4"} for i in range(3)} | {"sw": {"kind": "switch"}},
    "links": [
        {"between": [f"n{i}", "sw"], "bandwidth": "1 Mbps", "latency": latency}
        for i, latency in enumerate(("100 us", "3 ms", "6 ms"))
    ],
}
MNIST = {"name": "mnist_mlp", "hidden": 8, "batch_size": 4}
IN_STEP: dict[str, Any] = {
    "topology": SLOW_STAR,
    "algorithm": {"name": "zero"},
    "workload": {"name": "quadratic", "batch_size": 8},
    "stop": {"steps": 6},
    "evaluate_every": 1000,
    "regroup": False,
    "checkpoint": {"every": 2},
}


def test_no_checkpoint_mixes_steps_where_a_rank_dies_just_before_it_hands_in(tmp_path: Path) -> None:
    # The others hand in step 4 at 0.100 s and later; rank 0 dies at 0.101 s, after sending what they need for it.
    plan = IN_STEP | {"faults": [{"kind": "crash", "node": "n0", "at": "0.101 s"}]}
    with pytest.raises(PeerLost):
        play(plan, tmp_path)
    assert [(one.step, one.manifest.cut) for one in checkpoints(tmp_path)] == [(2, "step")]


def test_a_checkpoint_that_mixes_steps_is_passed_over(tmp_path: Path) -> None:
    """An earlier version wrote such checkpoints, as it would have for ranks that the others continue without."""
    plan = read_experiment(IN_STEP)
    store = Store(tmp_path, "a")
    for step, mixed in ((2, False), (4, True)):
        ranks = [RankEntry(rank, 2 if mixed and rank == 0 else step, step, 0.1, "{}", {}) for rank in range(3)]
        cut: Cut = "filled" if mixed else "step"
        store.commit(
            Manifest(
                run="a",
                sequence=0,
                step=step,
                world_size=3,
                time_s=0.1,
                cut=cut,
                judged={},
                ranks=ranks,
                config=plan.document,
                config_sha256=config_sha256(plan.document),
            )
        )
    with pytest.warns(CheckpointWarning, match="does not continue without rank 0"):
        assert last_complete(tmp_path).step == 2
    with pytest.warns(CheckpointWarning), pytest.raises(CheckpointError):
        last_complete(tmp_path, 4)
    for name, spare in (("d_psgd", [0, 1, 2]), ("sync_ps", [1, 2]), ("all_reduce_dp", []), ("own.py:train", [])):
        assert list(facts_of(ALGORITHMS.get(name)).spared(3, {})) == spare


CRASHES: dict[str, Any] = {
    "topology": {"generator": "star", "workers": 3, "device": "raspberry-pi-4", "bandwidth": "1 Mbps"},
    "algorithm": "pipeline",
    "workload": MNIST,
    "stop": {"steps": 8},
    "checkpoint": {"every": 3},
    "evaluate_every": 8,
}


@pytest.mark.slow
def test_a_resumed_run_meets_only_the_faults_that_have_not_happened_yet(tmp_path: Path) -> None:
    whole = simcluster.run(CRASHES, out=tmp_path / "whole", report=False).summary
    # Of eight equal steps the fifth is in flight at 0.55 of the run, the seventh at 0.8; step 3 and step 6 are kept.
    first_s, second_s = (round(part * whole["elapsed_s"], 6) for part in (0.55, 0.8))
    faults = [{"kind": "crash", "node": "n1", "at": f"{at_s} s"} for at_s in (first_s, second_s)]
    out = tmp_path / "run"
    with pytest.raises(PeerLost):
        simcluster.run(CRASHES | {"faults": faults}, out=out, report=False)
    shutil.copytree(out, tmp_path / "planned")
    with pytest.raises(PeerLost):
        simcluster.resume(out, report=False)
    (row,) = simcluster.load_run(out).summary["faults"]
    assert row["spells_s"][0][0] == pytest.approx(second_s), "it keeps its time of the whole run"
    assert simcluster.load_run(out).summary["resumed"]["step"] == 3
    done = simcluster.resume(out, report=False).summary
    assert (done["resumed"]["step"], done["weights_sha256"]) == (6, whole["weights_sha256"])
    with pytest.raises(PeerLost):  # a new plan, in which nothing has happened
        simcluster.resume(tmp_path / "planned", overrides={"faults": faults[:1]}, report=False)


@pytest.mark.slow
def test_a_fault_at_a_step_that_happened_does_not_happen_in_the_resumed_run(tmp_path: Path) -> None:
    whole = simcluster.run(CRASHES, out=tmp_path / "whole", report=False).summary
    faults = [{"kind": "crash", "node": "n1", "at_step": 4}]
    out = tmp_path / "run"
    with pytest.raises(PeerLost):
        simcluster.run(CRASHES | {"faults": faults}, out=out, report=False)
    shutil.copytree(out, tmp_path / "planned")
    done = simcluster.resume(out, report=False).summary
    assert (done["resumed"]["step"], done["weights_sha256"]) == (3, whole["weights_sha256"])
    with pytest.raises(PeerLost):  # a new plan, in which nothing has happened
        simcluster.resume(tmp_path / "planned", overrides={"faults": faults}, report=False)


def interrupt_at(step: int) -> Callable[[int, int], None]:
    def progress(done: int, _: int) -> None:
        if done >= step:
            raise KeyboardInterrupt

    return progress


@pytest.mark.slow
def test_a_fault_at_a_step_that_happened_does_not_happen_in_any_later_resumed_run(tmp_path: Path) -> None:
    whole = simcluster.run(CRASHES, out=tmp_path / "whole", report=False).summary
    # Attempts begin at steps 0, 3 and 3. The second one fails before it writes a checkpoint.
    faults = [{"kind": "crash", "node": node, "at_step": step} for node, step in (("n1", 4), ("n2", 5))]
    out = tmp_path / "run"
    with pytest.raises(PeerLost, match="n1"):
        simcluster.run(CRASHES | {"faults": faults}, out=out, report=False)
    with pytest.raises(PeerLost, match="n2"):
        simcluster.resume(out, report=False)
    assert simcluster.resume(out, report=False).summary["weights_sha256"] == whole["weights_sha256"]
    # A resumed run is interrupted in a new folder, which has a checkpoint of step 3 and no summary.
    keys = CRASHES | {"faults": faults[:1], "checkpoint": {"every": 1, "keep": 9}}
    with pytest.raises(PeerLost):
        simcluster.run(keys, out=tmp_path / "first", report=False)
    second = tmp_path / "second"
    with pytest.raises(KeyboardInterrupt):
        simcluster.resume(tmp_path / "first", step=1, out=second, report=False, progress=interrupt_at(3))
    assert checkpoints(second)[-1].step < 4
    assert simcluster.resume(second, report=False).summary["weights_sha256"] == whole["weights_sha256"]


def test_a_fault_at_a_step_happens_once_and_a_condition_again() -> None:
    crash = Crash(spells=((0.0, inf),), rank=0, step=4, spec={"kind": "crash"})
    slow = Slow(spells=((0.0, inf),), rank=0, step=4, spec={"kind": "slow"}, factor=2.0)
    later = Crash(spells=((0.0, inf),), rank=0, step=6, spec={"kind": "crash", "at_step": 6})
    past = [{"kind": "slow"}, {"kind": "crash"}]
    assert faults_to_come([crash, slow, later], 1.0, 2.0, step=3, happened=past) == (slow, later)
    assert faults_to_come([crash, slow, later], 1.0, 2.0, step=4) == (later,)


@pytest.mark.slow
def test_with_restarts_a_fault_happens_once_and_a_later_one_at_its_time(tmp_path: Path) -> None:
    whole = simcluster.run(CRASHES, out=tmp_path / "whole", report=False).summary
    times_s = [round(part * whole["elapsed_s"], 6) for part in (0.55, 0.8)]
    faults = [{"kind": "crash", "node": "n1", "at": f"{at_s} s"} for at_s in times_s]
    run = simcluster.run(
        CRASHES | {"faults": faults}, out=tmp_path / "run", report=False, options={"max_restarts": 2}
    ).summary
    assert [row["begins_again"] for row in run["restarts"]] == ["the checkpoint of step 3", "the checkpoint of step 6"]
    assert [row["spells_s"][0][0] for row in run["faults"]] == pytest.approx(times_s)
    assert run["weights_sha256"] == whole["weights_sha256"]


@pytest.mark.slow
def test_a_manifest_says_until_when_faults_have_happened(tmp_path: Path) -> None:
    """A run that began again and was killed later has no summary; its checkpoints know of the crash."""
    whole = simcluster.run(CRASHES, out=tmp_path / "whole", report=False).summary
    at_s = round(0.8 * whole["elapsed_s"], 6)
    faults = [{"kind": "crash", "node": "n1", "at": f"{at_s} s"}]
    out = tmp_path / "run"
    simcluster.run(CRASHES | {"faults": faults}, out=out, report=False, options={"max_restarts": 1})
    (out / "summary.json").unlink()
    (manifest,) = [one.manifest for one in checkpoints(out) if one.step == 8]
    assert manifest.happened_s is not None
    assert manifest.happened_s >= at_s


FAULTS_AT: list[tuple[Fault, float, float | None, list[Spell]]] = [
    (Crash(spells=((2.0, inf),), rank=0), 0.0, None, [(2.0, inf)]),
    (Crash(spells=((2.0, inf),), rank=0), 1.5, None, [(0.5, inf)]),
    (Crash(spells=((2.0, inf),), rank=0), 1.5, 2.0, []),
    (Crash(spells=((2.0, inf),), rank=0), 2.5, None, []),
    (Hang(spells=((2.0, 9.0),), rank=0), 1.5, 7.0, []),
    (Hang(spells=((2.0, 9.0), (12.0, 13.0)), rank=0), 1.5, 7.0, [(10.5, 11.5)]),
    (LinkCut(spells=((2.0, 9.0),), link="a"), 3.0, None, []),
    (Join(spells=((0.0, 4.0),), rank=1), 3.0, None, [(0.0, 1.0)]),
    (Join(spells=((0.0, 4.0),), rank=1), 3.0, 5.0, []),
    (Slow(spells=((2.0, inf),), rank=0, factor=2.0), 3.0, 5.0, [(0.0, inf)]),
    (Slow(spells=((2.0, 2.5),), rank=0, factor=2.0), 3.0, 5.0, []),
]


@pytest.mark.parametrize(("fault", "began_s", "happened_s", "spells"), FAULTS_AT)
def test_a_fault_happens_once_and_a_condition_holds_whenever_the_run_is_there(
    fault: Fault, began_s: float, happened_s: float | None, spells: list[Spell]
) -> None:
    assert [spell for one in faults_to_come([fault], began_s, happened_s) for spell in one.spells] == spells


def test_a_run_that_fails_for_a_late_comer_begins_again_with_it() -> None:
    """A real one fails at its first message to it, long before it would have come: the attempt lasts, by the plan."""
    join, crash = Join(spells=((0.0, 4.0),), rank=1), Crash(spells=((5.0, inf),), rank=0)
    restarts = Restarts(ClusterJob(["a", "b"], "{}", faults=(join, crash)), most=1)
    row = {"kind": "join", "target": "b", "spells_s": [[0.001, None]]}
    nodes = [NodeRecord(0, "a"), NodeRecord(1, "b")]
    assert restarts.again(RunRecord(nodes, 0.01, 0.01, PeerLost(1, "b", "joined too late"), extra={"faults": [row]}))
    assert restarts.job.faults == (crash,)
