"""Where runs differ, to the bit, in words and as JSON."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from simcluster.errors import UsageError
from simcluster.lab.reports.compare_words import columns
from simcluster.results import Run, compare
from simcluster.runs.comparison.compare import RunPair
from simcluster.runs.comparison.settings import ABSENT, SettingDifference
from simcluster.runs.record import Metric, RunRecord
from simcluster.runs.write import write_run
from simcluster.topology import load
from simcluster.workloads.weights_file import weights_file
from tests.support.made_up_runs import NAMES, made_up_config, made_up_run, topology_document

TOPOLOGY = load(topology_document())


def write(folder: Path, record: RunRecord | None = None, **config: Any) -> Run:
    return Run(write_run(folder, made_up_config(**config), TOPOLOGY, record or made_up_run(), "0.1.0"))


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return write(tmp_path_factory.mktemp("first"))


def test_a_run_repeated_is_the_same_to_the_bit(first: Run, tmp_path: Path) -> None:
    text = compare(first, write(tmp_path)).describe()
    assert "The same run to the bit, trace and weights" in text
    assert "Settings: all equal." in text
    assert "260 numbers in both, all equal to the bit." in text
    assert "different" not in text


@pytest.mark.parametrize("simulated_first", [True, False])
def test_a_simulation_beside_reality_is_a_prediction_beside_a_measurement(
    first: Run, tmp_path: Path, simulated_first: bool
) -> None:
    """Each of 50 steps takes 38 ms in the simulator and 1.25 times that for real: 1.9 s and 2.375 s."""
    real = write(tmp_path, made_up_run(stretch=1.25), backend="sockets")
    runs = (first, real) if simulated_first else (real, first)
    sha256 = first.summary["weights_sha256"][:12]
    expected = f"The same weights to the bit (sha256 {sha256}); predicted 1.90 s, measured 2.37 s (x1.25)."
    assert expected in compare(*runs).describe()
    (pair,) = compare(*runs).pairs
    assert pair.elapsed_ratio == pytest.approx(1.25, abs=1e-9)
    assert [setting.key for setting in pair.settings] == ["backend"]


def test_a_prediction_with_replicas_is_the_time_that_the_run_itself_prints(first: Run, tmp_path: Path) -> None:
    record = made_up_run()
    told = {"level": 0.5, "low": 1.9, "high": 2.6, "replicas": [2.6, 1.9, 2.0, 2.5, 1.95]}
    record.extra["intervals"] = {"elapsed_interval_s": told}
    predicted, measured = (
        write(tmp_path / "sim", record),
        write(tmp_path / "real", made_up_run(stretch=1.25), backend="sockets"),
    )
    assert compare(predicted, measured).pairs[0].elapsed_ratio == pytest.approx(1.25, abs=1e-9)
    assert (
        "predicted 1.90 s (1.90 s to 2.60 s with 50 %), measured 2.37 s, which lies inside (x1.25)"
        in compare(predicted, measured).describe()
    )


def test_a_shelf_is_not_compared_by_links_and_energy_with_processes_of_one_machine(first: Run, tmp_path: Path) -> None:
    record = made_up_run(stretch=1.25)
    record.extra["one_machine"] = True
    text = compare(first, write(tmp_path, record, backend="sockets")).describe()
    assert "predicted 1.90 s, measured 2.37 s on one machine (x1.25)." in text
    compared = "counts, weights, metrics and times are compared, energy and links are not."
    assert f"share one machine, which is not {TOPOLOGY.name}: {compared}" in text
    assert not re.search(r"^(energy|link|send to receipt) ", text, flags=re.MULTILINE)


def test_settings_differ_key_by_key_and_an_absent_one_is_no_none(first: Run, tmp_path: Path) -> None:
    document = topology_document()
    document["links"][4]["bandwidth"] = "1 Gbps"
    other = write(tmp_path, algorithm={"name": "sync_ps", "clip": None}, topology=document)
    name = "-".join(document["links"][4]["between"])
    assert RunPair(first, other).settings == [
        SettingDifference(f"topology.links.{name}.bandwidth", "100 Mbps", "1 Gbps"),
        SettingDifference("algorithm.clip", ABSENT, None),
    ]
    dumped = RunPair(first, other).to_dict()["settings"]
    assert dumped[1] == {"key": "algorithm.clip", "b": None}


def test_a_default_written_out_is_no_difference(first: Run, tmp_path: Path) -> None:
    document = topology_document()
    document["links"][0]["duplex"] = "full"
    same = write(tmp_path / "same", algorithm={"name": "sync_ps"}, topology=document)
    assert RunPair(first, same).settings == RunPair(same, first).settings == []
    # Another value is listed against the default; a function that is not shipped is not asked for one.
    written = write(tmp_path / "written", algorithm={"name": "sync_ps", "pull_interval": 2})
    assert RunPair(same, written).settings == [SettingDifference("algorithm.pull_interval", 1, 2)]
    own = [{"path": "/own.py:mine"}, {"path": "/own.py:mine", "interval": 10}]
    runs = [write(tmp_path / str(number), algorithm=block) for number, block in enumerate(own)]
    assert RunPair(*runs).settings == [SettingDifference("algorithm.interval", ABSENT, 10)]


def test_a_captured_source_is_the_same_in_another_folder_also_on_windows(first: Run, tmp_path: Path) -> None:
    name = "source/0123456789abcdef/algo.py:mine"
    here = write(tmp_path / "a", algorithm={"path": f"/home/me/runs/a/{name}"})
    there = write(tmp_path / "b", algorithm={"path": "C:\\runs\\b\\" + name.replace("/", "\\")})
    assert RunPair(here, there).settings == []


def test_true_is_another_setting_than_one(first: Run, tmp_path: Path) -> None:
    other = write(tmp_path, algorithm={"name": "sync_ps", "pull_interval": True})
    assert RunPair(first, other).settings == [SettingDifference("algorithm.pull_interval", 1, True)]


def test_one_node_with_other_weights_is_named(first: Run, tmp_path: Path) -> None:
    record = made_up_run()
    record.nodes[3].weights_sha256 = "f" * 64
    pair = RunPair(first, write(tmp_path, record))
    assert pair.same_weights is True
    assert pair.nodes_with_other_weights == ["pi5"]
    assert "The same weights at rank 0" in compare(first, pair.b).describe()
    assert "others at pi5" in compare(first, pair.b).describe()


def test_other_weights_everywhere_are_called_different(first: Run, tmp_path: Path) -> None:
    pair = RunPair(first, write(tmp_path, made_up_run(weights="other")))
    assert pair.same_weights is False
    assert "Different final weights (mini1, mini2, mini3, pi5 and pi4)" in compare(first, pair.b).describe()


NATIVE = {"torch": "2.13.0+cpu", "blas": "MKL 2024.2 on one CPU", "cpu_capability": "AVX512"}


def trained(folder: Path, weights: list[float], numerics: dict[str, str] | None) -> Run:
    """A run that ended with *weights* on every node, which nodes computed as *numerics* says."""
    record, tensor = made_up_run(), torch.tensor(weights)
    for node in record.nodes:
        node.weights_sha256 = hashlib.sha256(repr(weights).encode()).hexdigest()
        node.numerics = numerics
    file = weights_file(["w"], [tensor])
    record.nodes[0].weights = file.content if file is not None else None
    return write(folder, record)


@pytest.mark.parametrize(
    ("other", "within", "said"),
    [
        # |(3, 4) - (3, 4.001)| / |(3, 4)| = 0.001 / 5 = 2e-4, and 0.01 / 5 = 2e-3
        ([3.0, 4.001], True, "The same final weights within 0.001 of their norm, from unlike kernels"),
        ([3.0, 4.01], False, "Final weights differ by 0.002 of their norm: more than the tolerance, 0.001."),
        ([3.0, float("nan")], False, "Final weights differ by inf of their norm: more than the tolerance, 0.001."),
    ],
)
def test_other_bits_of_unlike_kernels_are_named_and_judged_by_a_tolerance(
    other: list[float], within: bool, said: str, tmp_path: Path
) -> None:
    a = trained(tmp_path / "a", [3.0, 4.0], NATIVE)
    pair = RunPair(a, trained(tmp_path / "b", other, NATIVE | {"cpu_capability": "AVX2"}))
    text = compare(a, pair.b).describe()
    assert "cpu_capability at mini1, mini2, mini3, pi5 and pi4: AVX512 -> AVX2" in text
    assert said in text
    found = json.loads(json.dumps(pair.to_dict(), allow_nan=False))["numerics"]
    assert found["within_tolerance"] is within
    assert found["tolerance"] == 1e-3
    assert found["unlike"][0] == {"node": "mini1", "key": "cpu_capability", "a": "AVX512", "b": "AVX2"}


@pytest.mark.parametrize("numerics", [NATIVE, None])
def test_other_bits_of_the_same_kernels_are_no_matter_of_tolerance(
    numerics: dict[str, str] | None, tmp_path: Path
) -> None:
    pair = RunPair(trained(tmp_path / "a", [3.0, 4.0], NATIVE), trained(tmp_path / "b", [3.0, 4.001], numerics))
    assert pair.to_dict()["numerics"] is None
    assert "Different final weights" in compare(pair.a, pair.b).describe()


def test_the_same_bits_of_unlike_kernels_need_no_word(tmp_path: Path) -> None:
    pair = RunPair(
        trained(tmp_path / "a", [3.0], NATIVE), trained(tmp_path / "b", [3.0], NATIVE | {"cpu_capability": "AVX2"})
    )
    assert pair.kernels is None


def test_the_first_number_that_differs_is_found_by_step_not_by_node(first: Run, tmp_path: Path) -> None:
    """mini1 is off at step 30 and pi4 at step 7, by the last bit only."""
    record = made_up_run()
    changed = {}
    for rank, step in ((0, 30), (4, 7)):
        metrics = record.nodes[rank].metrics
        at = next(i for i, metric in enumerate(metrics) if metric.step == step and metric.name == "loss")
        value = metrics[at].value
        changed[rank] = (value, value + 2**-50)
        metrics[at] = metrics[at]._replace(value=value + 2**-50)
    found = RunPair(first, write(tmp_path, record)).metrics
    assert (found.in_both, found.differ) == (260, 2)
    assert found.first == (7, "pi4", "loss", *changed[4])


def test_a_metric_only_one_run_has_is_counted_and_the_time_of_a_metric_is_not_compared(
    first: Run, tmp_path: Path
) -> None:
    record = made_up_run(stretch=3.0)
    record.nodes[1].metrics.append(Metric(0.5, 3, "mini2", "extra", 1.0))
    found = RunPair(first, write(tmp_path, record)).metrics
    assert (found.in_both, found.only_a, found.only_b, found.differ) == (260, 0, 1, 0)


def test_the_same_name_noted_twice_in_a_step_is_compared_in_order(tmp_path: Path) -> None:
    a, b = made_up_run(steps=1), made_up_run(steps=1)
    for record, values in ((a, (1.0, 2.0)), (b, (1.0, 3.0))):
        record.nodes[0].metrics += [Metric(1.0 + i, 1, "mini1", "twice", v) for i, v in enumerate(values)]
    found = RunPair(write(tmp_path / "a", a), write(tmp_path / "b", b)).metrics
    assert found.differ == 1
    assert found.first == (1, "mini1", "twice", 2.0, 3.0)


def test_two_losses_that_are_no_number_are_equal_and_json_stays_json(tmp_path: Path) -> None:
    runs = []
    for name, value in (("a", float("nan")), ("b", float("nan")), ("c", 1.0)):
        record = made_up_run(steps=1)
        record.nodes[0].metrics.append(Metric(1.0, 1, "mini1", "eval_loss", value))
        runs.append(write(tmp_path / name, record))
    assert RunPair(runs[0], runs[1]).metrics.differ == 0
    dumped = compare(*runs).to_dict()
    assert json.loads(json.dumps(dumped, allow_nan=False)) == dumped
    assert dumped["pairs"][1]["metrics"]["first_difference"]["a"] is None


def test_a_failed_run_is_said_to_have_failed(first: Run, tmp_path: Path) -> None:
    failed = write(tmp_path, made_up_run(fail_at_step=20))
    text = compare(first, failed).describe()
    assert "b failed: PeerLost: rank 4 (pi4) is lost: no heartbeat for 5 s." in text
    assert RunPair(first, failed).same_weights is None


def test_runs_on_other_clusters_say_who_is_only_in_one(first: Run, tmp_path: Path) -> None:
    smaller = write(tmp_path, made_up_run(names=NAMES[:4]))
    text = compare(first, smaller).describe()
    assert "pi4    only in a" in text
    assert re.search(r"messages +400 +300 +different", text)


def test_more_than_two_runs_are_each_compared_with_the_first(first: Run, tmp_path: Path) -> None:
    others = [write(tmp_path / str(seed), seed=seed) for seed in (8, 9)]
    comparison = compare(first, *others)
    assert [(pair.a.folder, pair.b.folder) for pair in comparison.pairs] == [
        (first.folder, other.folder) for other in others
    ]
    assert comparison.describe().count("seed  7  ->  ") == 2


def test_one_run_alone_cannot_be_compared(first: Run) -> None:
    with pytest.raises(UsageError, match="two runs or more"):
        compare(first)


def test_the_numbers_of_nodes_and_links_stand_side_by_side(first: Run, tmp_path: Path) -> None:
    other = write(tmp_path, made_up_run(steps=25))
    dumped = RunPair(first, other).to_dict()
    sent = dumped["nodes"]["mini1"]["bytes_sent"]
    assert sent["a"] == 2 * sent["b"] == first.summary["nodes"]["mini1"]["bytes_sent"]
    carried = dumped["links"]["pi4-sw0"]["bytes"]
    assert carried["a"] == 2 * carried["b"]


def test_columns_line_up_and_a_short_row_is_a_remark() -> None:
    assert columns([["n", "a", "b"], ["node1", "1", "100"], ["n2", "a long remark"]]) == (
        "n      a    b\nnode1  1  100\nn2     a long remark"
    )
