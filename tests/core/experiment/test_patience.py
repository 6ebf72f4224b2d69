"""With `stop.patience` a run ends when its held-out loss has not become lower for some evaluations, on all ranks."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import simcluster
from simcluster.documents.reading import DocumentReading
from simcluster.documents.yaml import Document
from simcluster.errors import CheckpointError, UsageError
from simcluster.experiment.measurements import Evaluations
from simcluster.experiment.read.fit import check_patience
from simcluster.experiment.read.read import read_experiment
from simcluster.experiment.run import resume
from simcluster.experiment.unreached import unreached
from simcluster.runs.record import RunRecord
from simcluster.runs.recorder import Recorder
from simcluster.runs.summary import LOSS
from tests.core.workloads.replicas import normalised, replica_of, some_data
from tests.support.kept import config, hashes, play, play_on

STEPS = 12


def experiment(patience: int | None, steps: int = STEPS, every: int = 1, **keys: Any) -> dict[str, Any]:
    plain = config("all_reduce_dp", schedule="naive")
    return plain | {"stop": {"steps": steps, "patience": patience}, "evaluate_every": every, **keys}


def losses_are(monkeypatch: pytest.MonkeyPatch, *losses: float) -> None:
    """Let the evaluations of the steps from 1 on have *losses*, and those of later steps lower and lower ones."""

    def told(_: Evaluations, after: int) -> list[float]:
        return [losses[after] if after < len(losses) else -float(after)]

    monkeypatch.setattr(Evaluations, "losses", told)


def notes(given: dict[str, Any], record: RunRecord) -> list[str]:
    return [line for line in unreached(read_experiment(given), [], record) if "stop" in line]


@pytest.mark.parametrize(
    ("patience", "losses", "last"),
    [
        (2, [3, 2, 2, 2, 1], 4),  # the lowest is of step 2, and neither step 3 nor step 4 is below it
        (1, [3, 4, 1], 2),
        (3, [3, 4, 4, 2, 3, 3, 3], 7),  # step 4 is a gain after two without one, so the count begins again
        (2, [3, 4, math.nan, 1], 3),  # a loss that is not a number is no gain
        (10, [3, *[4] * 10], 11),
        (11, [3, *[4] * 11], None),
    ],
)
def test_so_many_evaluations_without_a_lower_loss_end_the_run(
    patience: int, losses: list[float], last: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = experiment(patience)
    if last is None:
        with pytest.raises(UsageError, match="at most 10, since 11 evaluations come before the last of 12 steps"):
            read_experiment(given)
        return
    losses_are(monkeypatch, *losses)
    record = play(given, tmp_path)
    assert [node.steps for node in record.nodes] == [last] * 4
    assert hashes(record) == hashes(play(experiment(None, steps=last), tmp_path))
    assert record.extra["samples"]["used"] == last * 4 * 4  # 4 ranks, 4 samples each
    times = "1 evaluation" if patience == 1 else f"{patience} evaluations"
    told = [f"stopped after step {last}: no lower held-out loss in {times}"]
    assert notes(given, record) == (told if last < STEPS else [])


def test_the_decision_costs_messages_only_at_evaluations(tmp_path: Path) -> None:
    sent = [play(experiment(one, every=4), tmp_path).nodes for one in (None, 1)]
    without, with_it = (sum(node.messages_sent for node in nodes) for nodes in sent)
    assert with_it - without == 3 * 3  # to 3 other ranks, after steps 4, 8 and 12


@pytest.mark.parametrize("ranks", [4, 2])
def test_a_resumed_run_counts_on(ranks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    losses_are(monkeypatch, 3, 2, 4, 4, 4, 1)  # step 5 is the third without a gain
    given = experiment(3)
    whole = play(given, tmp_path, {"checkpoint": {"every": 2, "keep": 9}})
    star = {} if ranks == 4 else {"topology": {"generator": "star", "workers": ranks}}
    rest = play_on(tmp_path, 4, star)
    assert [node.steps for node in rest.nodes] == [5] * ranks
    if ranks == 4:
        assert hashes(rest) == hashes(whole)
        assert rest.extra["samples"] == whole.extra["samples"]
    with pytest.raises(CheckpointError, match=r"stop\.patience: found 3, expected more than 3"):
        play_on(tmp_path)
    assert play_on(tmp_path, 5, {"stop.patience": 4}).nodes[0].steps == STEPS


def test_the_count_survives_the_loss_of_the_rank_that_evaluates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses_are(monkeypatch, 3, 2, 4, 4, 4, 4, 4, 4)
    crash = {"kind": "crash", "node": "mini1", "at_step": 4}
    record = play(experiment(3, faults=[crash]), tmp_path)
    assert [len(node.regroups) for node in record.nodes] == [0, 1, 1, 1]
    assert [node.steps for node in record.nodes] == [4, 5, 5, 5]


def test_a_step_that_another_group_made_again_counts_once() -> None:
    noted = Recorder(0, "a", lambda: 0.0)
    replica = replica_of(normalised, size=1, steps=3, test=some_data())
    for step, loss in ((2, 5.0), (4, 6.0), (4, 7.0), (6, 8.0)):
        noted.evaluated(0.0, step, {LOSS: loss})
    evaluations = Evaluations(2, replica, noted)
    assert evaluations.losses(2) == [7.0, 8.0]
    assert evaluations.losses(6) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"stop.patience": 0}, "a whole number of at least 1"),
        ({"stop.patience": -1}, "a whole number of at least 1"),
        ({"evaluate_every": 20}, "none, or a lower evaluate_every, since 0 evaluations come before the last"),
        ({"numerics": "none"}, "numerics: real, since without it there is no loss"),
        ({"algorithm": {"name": "ssp"}}, "none with ssp, since its ranks do not all end a step together"),
        ({"algorithm": {"name": "zero"}}, "with their defaults all_reduce_dp, demo, diloco, local_sgd and sparta fit"),
        ({"algorithm.staleness": 1}, "since results of earlier steps are under way when a step ends"),
        ({"algorithm": {"name": "streaming_diloco", "overlap": 0}}, "only its last step synchronises all fragments"),
    ],
)
def test_a_patience_that_cannot_work_is_refused(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(UsageError, match=r"stop\.patience.*" + expected):
        read_experiment(experiment(3), changes)


def test_a_workload_without_held_out_samples_is_refused() -> None:
    plan = read_experiment(experiment(3))
    reading = DocumentReading(Document({}), Path())
    check_patience(reading, replace(plan, workload=replace(plan.workload, test=None)))
    assert [problem.expected for problem in reading.problems] == [
        "none, or a workload with held-out samples (test), whose loss decides"
    ]


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", [{"name": "all_reduce_dp"}, {"name": "local_sgd", "interval": 5}])
def test_both_backends_end_after_the_same_step_with_the_same_weights(algorithm: dict[str, Any], tmp_path: Path) -> None:
    given = {
        "topology": {"generator": "star", "workers": 3},
        "algorithm": algorithm,
        "workload": {"name": "mnist_mlp", "learning_rate": 0.9, "batch_size": 8},
        "stop": {"steps": 400, "patience": 3},
        "evaluate_every": 10,
        "checkpoint": {"every": 5, "keep": 100},
    }
    sim, real = (
        simcluster.run(given, backend=backend, out=tmp_path / backend, report=False).summary
        for backend in ("sim", "sockets")
    )
    last = sim["steps"]
    assert last < 400
    assert sim["notes"] == [f"stopped after step {last}: no lower held-out loss in 3 evaluations"]
    rest = resume(tmp_path / "sockets", step=last - 15, out=tmp_path / "rest", report=False).summary
    for other in (real, rest):
        for key in ("steps", "notes", "loss", "weights_sha256", "samples"):
            assert other[key] == sim[key], key
        assert len({node["weights_sha256"] for node in other["nodes"].values()}) == 1
