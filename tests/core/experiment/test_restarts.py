"""A run that is lost begins again so often and no more, from what was kept, and its record tells of it."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

import pytest

import simcluster
from simcluster.errors import LaunchFailed, NeverFinished, NodeFailed, PeerLost, RunError
from simcluster.experiment.restarts import Restarts
from simcluster.fault_plans.kinds import Crash
from simcluster.job import ClusterJob
from simcluster.runs.record import RunRecord


def run_again_if_lost(job: ClusterJob, max_restarts: int, once: Callable[[ClusterJob], RunRecord]) -> RunRecord:
    restarts = Restarts(job, max_restarts)
    while restarts.again(record := once(restarts.job)):
        continue
    return restarts.told(record)


def runs(
    errors: list[RunError | None], max_restarts: int, again: Callable[[], tuple[str, str] | None] | None = None
) -> tuple[RunRecord, list[ClusterJob]]:
    """(the record of a job whose runs end with *errors*, the jobs that were run)."""
    seen: list[ClusterJob] = []

    def once(job: ClusterJob) -> RunRecord:
        seen.append(job)
        fault = {"run": len(seen), "spells_s": [[0.2, None]]}
        return RunRecord([], 1.0, 1.0, errors[len(seen) - 1], {"lost": {}, "faults": [fault]})

    job = ClusterJob(["a"], "first", faults=(Crash(spells=((0.2, inf),), rank=0),), again=again)
    return run_again_if_lost(job, max_restarts, once), seen


LOST, FAILED = PeerLost(0, "a", "died"), NodeFailed(0, "a", "Traceback")


def test_it_begins_again_until_it_ends_well() -> None:
    record, seen = runs([LOST, FAILED, None, None], max_restarts=5)
    assert record.error is None
    assert len(seen) == 3
    assert [entry["begins_again"] for entry in record.extra["restarts"]] == ["the start", "the start"]
    assert record.extra["restarts"][0]["error"] == "PeerLost: rank 0 (a) is lost: died"
    assert [fault["run"] for fault in record.extra["faults"]] == [1, 2, 3]


def test_it_begins_again_no_more_often_than_asked() -> None:
    record, seen = runs([LOST, LOST, LOST], max_restarts=2)
    assert record.error is LOST
    assert len(seen) == 3
    record, seen = runs([LOST], max_restarts=0)
    assert "restarts" not in record.extra


@pytest.mark.parametrize("error", [NeverFinished("", []), LaunchFailed("", [])])
def test_what_would_happen_again_is_not_tried_again(error: RunError) -> None:
    assert len(runs([error, None], max_restarts=3)[1]) == 1


def test_it_goes_on_from_what_was_kept_and_the_plans_faults_are_over() -> None:
    kept = iter([None, ("from 7", "the checkpoint of step 7")])
    record, seen = runs([LOST, LOST, None], max_restarts=3, again=lambda: next(kept))
    assert [job.config_json for job in seen] == ["first", "first", "from 7"]
    assert [len(job.faults) for job in seen] == [1, 0, 0]
    assert [entry["begins_again"] for entry in record.extra["restarts"]] == ["the start", "the checkpoint of step 7"]


def test_a_fault_that_has_happened_is_over_also_after_an_attempt_that_ended_sooner() -> None:
    lasts_s = iter((1.0, 0.1, 1.0))  # the crash at 0.2 s happens in the first attempt, and the second ends before that
    seen: list[ClusterJob] = []

    def once(job: ClusterJob) -> RunRecord:
        seen.append(job)
        return RunRecord([], next(lasts_s), 1.0, LOST if len(seen) < 3 else None, {})

    run_again_if_lost(ClusterJob(["a"], "", faults=(Crash(spells=((0.2, inf),), rank=0),)), 2, once)
    assert [len(job.faults) for job in seen] == [1, 0, 0]


# In the simulator

KEPT = {
    "topology": {"generator": "star", "workers": 3, "device": "raspberry-pi-4", "bandwidth": "1 Mbps"},
    "algorithm": "pipeline",
    "workload": {"name": "mnist_mlp", "hidden": 8, "batch_size": 4},
    "stop": {"steps": 8},
    "checkpoint": {"every": 3},
    "evaluate_every": 8,
}


def simulated(out: Path, *, max_restarts: int = 1, **changes: Any) -> dict[str, Any]:
    experiment = {**KEPT, "name": "restarts", **changes}
    options = {"max_restarts": max_restarts}
    return simcluster.run(experiment, out=out, options=options, report=False).summary


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return simulated(tmp_path_factory.mktemp("undisturbed"))


@pytest.mark.slow
def test_a_simulated_run_goes_on_from_its_last_checkpoint_with_the_same_bits(
    undisturbed: dict[str, Any], tmp_path: Path
) -> None:
    # Of eight steps of equal length the fifth is under way at 0.55 of the run; the third was kept.
    at_s = 0.55 * undisturbed["elapsed_s"]
    crash = [{"kind": "crash", "node": "n1", "at": f"{at_s:.9f} s"}]
    summary = simulated(tmp_path / "crash", faults=crash)
    (restart,) = summary["restarts"]
    assert restart["error"] == "PeerLost: rank 1 (n1) is lost: crashed by the fault plan"
    assert restart["begins_again"] == "the checkpoint of step 3"
    assert restart["lasted_s"] >= at_s, "the others notice a little later"
    assert summary["weights_sha256"] == undisturbed["weights_sha256"]
    assert summary["elapsed_s"] == pytest.approx(undisturbed["elapsed_s"]), "time goes on where it was kept"
    assert summary["resumed"]["step"] == 3
    (fault,) = summary["faults"]
    assert fault["spells_s"] == [[pytest.approx(at_s, abs=1e-9), None]], "in the time of the first attempt"
    assert "restarts" not in undisturbed
    assert "faults" not in undisturbed


def test_a_simulated_run_without_checkpoints_begins_at_the_start(tmp_path: Path) -> None:
    crash = [{"kind": "crash", "node": "n0", "at": "1 ms"}]
    summary = simulated(tmp_path / "crash", faults=crash, checkpoint={"every": 100})
    assert [entry["begins_again"] for entry in summary["restarts"]] == ["the start"]
    with pytest.raises(PeerLost):
        simulated(tmp_path / "never", faults=crash, max_restarts=0)
