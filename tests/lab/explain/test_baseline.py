"""An experiment against one node: the same samples, the times by hand, and the weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simcluster.errors import UsageError
from simcluster.lab.explain.baseline import baseline
from tests.support.clusters import uneven_star

QUADRATIC = {"name": "quadratic", "features": 12, "batch_size": 8, "dtype": "float64"}


def star(devices: list[str], bandwidth: str = "1 Gbps") -> dict[str, Any]:
    return uneven_star(*devices, bandwidth=bandwidth, latency="0 us")


def experiment(devices: list[str], algorithm: str = "all_reduce_dp", **more: Any) -> dict[str, Any]:
    return {"topology": star(devices), "algorithm": algorithm, "workload": QUADRATIC, "stop": {"steps": 4}, **more}


def test_free_links_and_equal_nodes_give_the_speed_up_of_their_gradients(tmp_path: Path) -> None:
    # Half of the samples take half of the gradient's time; the optimizer's step is as long on two nodes as on one.
    given = experiment(["1 MFLOP/s"] * 2, numerics="none") | {"topology": star(["1 MFLOP/s"] * 2, "1 Tbps")}
    found = baseline(given, out=tmp_path / "run")
    steps_s = found.alone_s / 4
    apply_s = 2 * found.together_s / 4 - steps_s
    assert 0 < apply_s < steps_s
    assert found.speed_up == pytest.approx(steps_s / ((steps_s - apply_s) / 2 + apply_s), rel=1e-3)
    assert (found.nodes, found.samples, found.possible) == (2, 16, pytest.approx(2, rel=1e-9))
    assert found.efficiency == found.speed_up / 2
    assert found.weights is None


def test_distribution_pays_in_pays_as_its_arithmetic_says(tmp_path: Path) -> None:
    # A ring of two: each sends two halves of the gradient, 0.4765 MB in all at 941 Mb/s, and waits for 4 x 50 us.
    found = baseline("pays", out=tmp_path / "run", overrides={"numerics": "none", "stop.steps": 4})
    alone_s, wires_s = found.alone_s / 4, 0.4765e6 * 8 / 941e6 + 4 * 50e-6
    assert 1.7 < found.speed_up < alone_s / (alone_s / 2 + wires_s)


@pytest.mark.slow
def test_the_fastest_node_works_alone_and_slow_ones_add_their_share(tmp_path: Path) -> None:
    found = baseline(experiment(["1 MFLOP/s", "4 MFLOP/s", "1 MFLOP/s"], numerics="none"), out=tmp_path / "run")
    assert found.node == "n1"
    # 1 + 4 + 1 by 4.
    assert found.possible == pytest.approx(1.5, rel=1e-9)
    named = baseline(experiment(["1 MFLOP/s", "4 MFLOP/s"], numerics="none"), node="n0", out=tmp_path / "other")
    assert (named.node, named.possible) == ("n0", pytest.approx(5, rel=1e-9))


def test_averaged_gradients_give_the_weights_of_one_node_up_to_rounding(tmp_path: Path) -> None:
    found = baseline(experiment(["1 MFLOP/s"] * 3), out=tmp_path / "run")
    assert found.weights is not None
    assert found.weights.relative < 1e-12
    assert "The weights are the same" in " ".join(found.sentences())


def test_a_single_node_has_the_same_bits_and_gains_nothing(tmp_path: Path) -> None:
    found = baseline(experiment(["1 MFLOP/s"]), out=tmp_path / "run")
    assert found.weights is not None
    assert found.weights.same
    assert found.speed_up == pytest.approx(1, rel=1e-9)
    assert "The weights are the same, to the bit." in found.sentences()


def test_local_steps_end_with_other_weights(tmp_path: Path) -> None:
    found = baseline("quickstart", algorithm="local_sgd", overrides={"stop.steps": 10}, out=tmp_path / "run")
    assert found.weights is not None
    assert found.weights.relative > 1e-4
    assert any(text.startswith("The weights differ: ") for text in found.sentences())
    assert found.weights.loss != found.run.summary["loss"]


@pytest.mark.parametrize(
    ("changes", "node", "said"),
    [
        ({}, "n7", "--node: found 'n7'"),
        ({"stop": {"steps": 4, "time": "1 s"}}, None, "stop.time: found 1 s"),
        ({"stop": {"steps": 4, "patience": 1}}, None, "stop.patience: found 1, expected only steps or epochs"),
        ({"algorithm": {"name": "sync_ps", "server_trains": False}}, None, "server_trains: found false"),
    ],
)
def test_what_cannot_be_compared_is_refused(changes: dict[str, Any], node: str | None, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        baseline(experiment(["1 MFLOP/s"] * 2) | changes, node=node)


@pytest.mark.slow
def test_the_command_prints_sentences_or_json(command: Any) -> None:
    words = ("baseline", "quickstart", "--set", "stop.steps=3", "--out", "run")
    code, out, err = command(*words)
    assert (code, err) == (0, "")
    assert "The speed-up is 0.0" in out
    assert "`simcluster explain run` says why" in out
    found = json.loads(command(*words, "--json")[1])
    assert found["speed_up"] == found["alone_s"] / found["together_s"]
    assert found["samples_per_step"] == 160
