"""Experiment files: defaults, overrides, and all errors of a wrong one at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simcluster.errors import UsageError
from simcluster.experiment import read_experiment

GOOD: dict[str, Any] = {
    "topology": "star-8-gigabit",
    "algorithm": "sync_ps",
    "workload": {"name": "quadratic", "batch_size": 8},
    "stop": {"steps": 10},
}


def problems_of(source: Any, **options: Any) -> list[str]:
    with pytest.raises(UsageError) as caught:
        read_experiment(source, **options)
    return [str(problem) for problem in caught.value.problems]


def test_the_resolved_document_has_every_default_and_reads_back_to_the_same() -> None:
    plan = read_experiment(GOOD)
    assert plan.document["algorithm"] == {
        "name": "sync_ps",
        "pull_interval": 1,
        "polyak": 1.0,
        "timeout_s": None,
        "wait_for": None,
        "cancel_late": False,
        "server_trains": True,
        "compression": "none",
    }
    assert plan.document["workload"]["learning_rate"] == 0.1
    assert plan.document["seed"] == 0
    again = read_experiment(plan.document)
    assert again.document == plan.document
    assert again.topology == plan.topology
    assert (again.steps, again.seed, again.algorithm) == (plan.steps, plan.seed, plan.algorithm)


def test_epochs_become_steps_of_every_rank() -> None:
    # 512 samples over 8 ranks of 8: 8 steps an epoch
    plan = read_experiment({**GOOD, "stop": {"epochs": 2.5}})
    assert plan.steps == 20


def test_overrides_reach_every_part() -> None:
    plan = read_experiment(
        GOOD,
        {
            "algorithm.pull_interval": 4,
            "workload.batch_size": 4,
            "stop.steps": 7,
            "seed": 9,
            "topology.nodes.n1.device": "raspberry-pi-4",
        },
    )
    device = plan.topology.nodes["n1"].device
    assert device is not None
    assert device.name == "raspberry-pi-4"
    assert plan.algorithm_settings["pull_interval"] == 4
    assert plan.document["workload"]["batch_size"] == 4
    assert (plan.steps, plan.seed) == (7, 9)


def test_an_algorithm_option_brings_its_own_defaults() -> None:
    plan = read_experiment({**GOOD, "algorithm": {"name": "sync_ps", "pull_interval": 3}}, algorithm="edp")
    assert plan.document["algorithm"] == {
        "name": "edp",
        "pull_interval": 1,
        "max_staleness": None,
        "damping": "none",
        "push": "gradients",
        "compression": "none",
        "server_trains": True,
    }


def test_all_errors_of_a_file_are_shown_at_once_with_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(
        "nam: x\n"
        "topology: smolclster\n"
        "algorithm: {name: sync_ps, pull_intervall: 2, polyak: 3}\n"
        "workload: {name: mnist_mpl}\n"
        "stop: {steps: 5, epochs: 2}\n"
        "seed: -1\n"
        "numerics: some\n"
    )
    found = problems_of(path)
    text = "\n".join(found)
    for line, words in {
        1: "did you mean 'name'?",
        2: "smolcluster",
        3: "did you mean 'pull_interval'?",
        4: "did you mean 'mnist_mlp'?",
        5: "either steps or epochs",
        6: "at least 0",
        7: "real or none",
    }.items():
        assert any(f"wrong.yaml:{line}:" in problem and words in problem for problem in found), (
            f"line {line} in\n{text}"
        )
    assert any("less than or equal to 1" in problem for problem in found), text


def test_an_unknown_override_names_the_nearest_key() -> None:
    assert "did you mean 'stop'?" in problems_of(GOOD, overrides={"stopp.steps": 3})[0]
    assert "did you mean 'pull_interval'?" in problems_of(GOOD, overrides={"algorithm.pul_interval": 3})[0]


def test_an_unknown_experiment_names_the_nearest() -> None:
    assert "quickstart" in problems_of("quickstrt")[0]


def test_data_that_cannot_be_dealt_out_is_refused_before_anything_runs() -> None:
    # 512 samples over 8 ranks are 64 each
    assert "at most 64" in problems_of({**GOOD, "workload": {"name": "quadratic", "batch_size": 65}})[0]


def test_stop_time_needs_a_unit() -> None:
    assert read_experiment({**GOOD, "stop": {"steps": 5, "time": "2 min"}}).time_s == 120.0
    assert "stop.time" in problems_of({**GOOD, "stop": {"steps": 5, "time": 120}})[0]


def test_what_is_wrong_with_stop_is_told_beside_all_else() -> None:
    for stop, key in (({"steps": -4}, "stop.steps"), ({"epochs": float("nan")}, "stop.epochs")):
        found = problems_of({**GOOD, "numerics": "some", "stop": {**stop, "time": "0 s"}})
        assert len(found) == 3, found
        assert any(problem.startswith(key) for problem in found)
        assert any("stop.time: found '0 s', expected a time above zero" in problem for problem in found)


def test_an_override_may_be_as_short_as_the_file() -> None:
    assert read_experiment(GOOD, {"algorithm": "edp"}).algorithm_name == "edp"
    plan = read_experiment(GOOD, {"algorithm": "edp", "algorithm.pull_interval": 3})
    assert plan.algorithm_settings["pull_interval"] == 3


def test_an_experiment_without_a_name_has_its_files(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("{topology: star-8-gigabit, algorithm: edp, workload: quadratic, stop: {steps: 1}}")
    assert read_experiment(path).name == "mine"


def test_the_mapping_that_was_given_is_left_as_it_was() -> None:
    read_experiment(GOOD, {"stop.steps": 3, "workload.batch_size": 4}, seed=2)
    assert GOOD["stop"] == {"steps": 10}
    assert GOOD["workload"] == {"name": "quadratic", "batch_size": 8}
    assert "seed" not in GOOD
