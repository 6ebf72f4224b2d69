"""`numerics: none`: the same algorithm files, messages, bytes and virtual times as with real numerics; and what such a
run cannot tell, or do, said in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import simcluster
from simcluster.algorithms import ALGORITHMS
from simcluster.errors import NeedsValues, NodeFailed, UsageError
from simcluster.experiment.read.read import read_experiment
from simcluster.lab.reports.report import write_report
from simcluster.results import Run, compare
from simcluster.topology import star
from tests.support.levels import sample_of
from tests.support.root import ROOT

SETTINGS: dict[str, list[dict[str, Any]]] = {
    "ad_psgd": [{}, {"overlay": "complete", "output": "mean"}],
    "all_reduce_dp": [
        {},
        {"schedule": "naive"},
        {"initial_weights": "broadcast"},
        {"staleness": 2},
        {"bucket_bytes": 1000, "accumulate": 2},
        {"bucket_bytes": 1000, "staleness": 1, "accumulate": 2, "compression": "qsgd"},
        {"compression": {"kind": "top_k", "fraction": 0.05}, "staleness": 1},
        {"compression": "power_sgd"},
        {"schedule": "halving_doubling", "bucket_bytes": 1000},
    ],
    "async_diloco": [{"interval": 3}, {"interval": 4, "compression": "int8"}],
    "choco_sgd": [{}, {"compression": "top_k", "output": "mean", "consensus_every": 3}],
    "d_psgd": [{}, {"order": "step_then_mix", "consensus_every": 3, "output": "mean"}],
    "demo": [{}, {"chunk": 4, "top_k": 2, "update": "mean"}],
    "diloco": [{"interval": 5}, {"interval": 4, "compression": "int8"}],
    "easgd": [{"form": form, "interval": 3} for form in ("asynchronous", "synchronous", "round_robin")],
    "edp": [
        {},
        {"pull_interval": 2},
        {"max_staleness": 1},
        {"damping": "inverse"},
        {"compression": "int8"},
        {"push": "weights", "pull_interval": 3},
    ],
    "fedbuff": [{"interval": 2, "max_staleness": 1}, {"interval": 3, "compression": "int8"}],
    "gradient_tracking": [{}, {"consensus_every": 3, "output": "mean"}],
    "k_async": [{"k": 2}, {"k": 2, "batch": True}],
    "k_sync": [{"k": 3}, {"k": 3, "batch": True}],
    "local_sgd": [
        {"interval": 5, "participation": 0.5},
        {"interval": 4, "weighting": "samples"},
        {"interval": 4, "compression": "top_k"},
        {"interval": 3, "proximal": 0.1, "control_variates": True},
    ],
    "one_bit_adam": [{"warmup": 3}],
    "sgp": [{}, {"overlay": "star", "consensus_every": 3, "output": "mean"}],
    "softsync": [{"n": 2, "damping": "inverse"}],
    "sparta": [{}, {"fraction": 1.0}],
    "ssp": [{"staleness": 1}],
    "streaming_diloco": [{"interval": 4, "overlap": 3}, {"interval": 5, "compression": "int8"}],
    "sync_ps": [
        {},
        {"pull_interval": 3},
        {"polyak": 0.5},
        {"timeout_s": 0.0006},
        {"timeout_s": 0.0006, "cancel_late": True},
        {"wait_for": 2, "cancel_late": True},
    ],
    "zero": [
        *({"stage": stage, "staleness": 1} for stage in range(4)),
        {"stage": 3, "staleness": 1, "reduce": "direct"},
    ],
}
MNIST = {"name": "mnist_mlp", "hidden": 32, "clip_norm": 1.0, "momentum": 0.5}


def experiment(algorithm: dict[str, Any], numerics: str, **changes: Any) -> dict[str, Any]:
    """Four nodes around a switch, of which two are moody and one has a slow link."""
    topology = dict(star(4, device="raspberry-pi-5").document)
    topology["nodes"]["n1"]["straggler"] = {"kind": "lognormal", "sigma": 0.5}
    topology["nodes"]["n2"]["straggler"] = {"kind": "exponential", "mean": 2.0}
    topology["links"][3]["bandwidth"] = "300 Mbps"
    return {
        "name": "timing",
        "topology": topology,
        "algorithm": algorithm,
        "workload": MNIST,
        "stop": {"steps": 8},
        "seed": 3,
        "numerics": numerics,
        **changes,
    }


def both(algorithm: dict[str, Any], folder: Path, **changes: Any) -> tuple[Run, Run]:
    real, none = (
        simcluster.run(experiment(algorithm, numerics, **changes), out=folder / numerics, report=False)
        for numerics in ("real", "none")
    )
    return real, none


def same_time_and_messages(real: Run, none: Run, *, spans: bool = True) -> None:
    for key in ("elapsed_s", "steps", "messages_sent", "bytes_sent", "links"):
        assert real.summary[key] == none.summary[key], key
    for name, numbers in real.summary["nodes"].items():
        theirs = none.summary["nodes"][name]
        for key in ("compute_s", "wait_s", "finished_s", "bytes_sent", "bytes_received", "messages_sent"):
            assert numbers[key] == theirs[key], f"{key} of {name}"
    if spans:
        assert real.spans == none.spans, "every wait, message and piece of work at its time"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "settings"),
    [case for name in SETTINGS for case in sample_of([(name, one) for one in SETTINGS[name]], 9)],
    ids=str,
)
def test_every_algorithm_takes_the_time_and_sends_the_messages_of_real_numerics(
    name: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    same_time_and_messages(*both({"name": name, **settings}, tmp_path))


def test_every_algorithm_is_timed() -> None:
    split = {"pipeline", "tensor_parallel"}  # their models have fewer layers: tests/core/algorithms/model_parallel
    routed = {"expert_parallel"}  # values decide where its tokens go
    assert set(SETTINGS) == set(ALGORITHMS) - split - routed


@pytest.mark.slow
@pytest.mark.parametrize(
    "workload",
    [
        {"name": "gpt", "layers": 2, "width": 32, "heads": 2, "batch_size": 2, "context": 16},
        {"name": "quadratic"},
        {"name": "mnist_mlp", "optimizer": "adamw"},
    ],
    ids=str,
)
def test_so_it_is_with_every_workload(workload: dict[str, Any], tmp_path: Path) -> None:
    same_time_and_messages(*both({"name": "edp"}, tmp_path, workload=workload))


def test_a_fault_ends_both_alike(tmp_path: Path) -> None:
    faults = [{"kind": "crash", "node": "n2", "at": "3 ms"}]
    real, none = both({"name": "edp"}, tmp_path, faults=faults)
    assert real.summary["lost"] == none.summary["lost"]
    same_time_and_messages(real, none)


def test_metrics_that_do_not_come_of_values_are_recorded_and_others_are_not(tmp_path: Path) -> None:
    real, none = both({"name": "edp"}, tmp_path)
    known = {"applied", "pushed", "staleness"}
    assert set(none.metrics["name"]) == known
    kept = real.metrics[real.metrics["name"].isin(known)].reset_index(drop=True)
    assert kept.equals(none.metrics)


@pytest.mark.slow
def test_what_is_not_computed_is_null_and_said_in_words(tmp_path: Path) -> None:
    real, none = both({"name": "sync_ps"}, tmp_path)
    summary = none.summary
    assert (summary["loss"], summary["accuracy"], summary["weights_sha256"]) == (None, None, None)
    assert {node["weights_sha256"] for node in summary["nodes"].values()} == {None}
    assert summary["numerics"] == "none"
    assert real.summary["numerics"] == "real"
    with pytest.raises(UsageError, match=r"was timed only \(numerics: none\)"):
        none.weights()
    words = compare(real, none).describe()
    assert "b was timed only (numerics: none)" in words
    assert "Different" not in words
    assert compare(real, none).to_dict()["pairs"][0]["same_weights"] is None
    both_timed = compare(none, none).describe()
    assert "a and b were timed only (numerics: none)" in both_timed
    page = write_report(none, read_experiment(none.config).topology).read_text()
    assert "Timed only (numerics: none): nothing was learnt" in page
    assert "This run recorded neither loss nor accuracy" not in page


def test_a_timing_run_repeats_to_the_bit(tmp_path: Path) -> None:
    first, second = (
        simcluster.run(experiment({"name": "edp"}, "none"), out=tmp_path / str(index), report=False) for index in (1, 2)
    )
    assert first.summary["trace_sha256"] == second.summary["trace_sha256"]
    repeated = simcluster.run(tmp_path / "1" / "config.yaml", out=tmp_path / "3", report=False)
    assert repeated.summary["trace_sha256"] == first.summary["trace_sha256"]


@pytest.mark.slow
def test_ones_own_algorithm_and_workload_are_timed_too(tmp_path: Path) -> None:
    own = ROOT / "experiments" / "own" / "own.yaml"
    real, none = (
        simcluster.run(own, overrides={"numerics": numerics, "stop.steps": 20}, out=tmp_path / numerics, report=False)
        for numerics in ("real", "none")
    )
    # Rounds of a ring that nobody disturbs are gone through together, and are one span each way.
    same_time_and_messages(real, none, spans=False)


DECISIONS = {
    "loss.py": "    if loss < 1.0:\n        return\n",
    "item.py": "    if gradients[0].norm().item() > 1.0:\n        return\n",
    "truth.py": "    if gradients[0].sum() > 0:\n        return\n",
    "number.py": "    print(float(replica.parameters[0][0][0]))\n",
    "array.py": "    gradients[0].numpy()\n",
    "choice.py": "    gradients[0][gradients[0] > 0]\n",
    "mixed.py": "    gradients[0] * torch.rand(gradients[0].shape, generator=node.rng.torch)\n",
    "place.py": "    range(10**9)[gradients[0].argmax()]\n",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", DECISIONS)
def test_an_algorithm_that_decides_by_a_value_is_told_where_and_what_to_do(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(
        "import torch\n"
        "async def decides(node, replica):\n"
        "    batch = next(replica.batches())\n"
        "    cost = replica.gradient_cost(batch)\n"
        "    loss, gradients = await node.compute(replica.loss_and_gradients, batch, cost=cost)\n" + DECISIONS[name]
    )
    algorithm = {"path": f"{tmp_path / name}:decides"}
    simcluster.run(experiment(algorithm, "real"), out=tmp_path / "real", report=False)
    with pytest.raises(NeedsValues, match=rf"{name}:6 \(decides\) asks for a value .*set numerics: real, or") as caught:
        simcluster.run(experiment(algorithm, "none"), out=tmp_path / "none", report=False)
    assert caught.value.folder == str(tmp_path / "none")
    assert Run(tmp_path / "none").summary["error"]["type"] == "NeedsValues"


def test_an_ordinary_mistake_stays_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text("async def wrong(node, replica):\n    raise RuntimeError('a mistake')\n")
    source = experiment({"path": f"{tmp_path / 'wrong.py'}:wrong"}, "none")
    with pytest.raises(NodeFailed, match="RuntimeError: a mistake"):
        simcluster.run(source, out=tmp_path / "run", report=False)


def test_a_workload_that_needs_values_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(
        "import torch\n"
        "from simcluster import Workload\n"
        "from simcluster.workloads import sgd\n"
        "def loss(outputs, targets):\n"
        "    return outputs.mean() if outputs.sum().item() > 0 else outputs.square().mean()\n"
        "def make():\n"
        "    data = torch.ones(40, 3), torch.ones(40)\n"
        "    return Workload(lambda: torch.nn.Linear(3, 1), loss, data, sgd(0.1), 2)\n"
    )
    source = experiment({"name": "edp"}, "none", workload={"path": f"{tmp_path / 'work.py'}:make"})
    with pytest.raises(UsageError, match="numerics: found none, but the model and its loss cannot do without values"):
        simcluster.run(source, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_sockets_compute_always() -> None:
    with pytest.raises(UsageError, match="numerics: found 'none', expected real, since sockets computes on real nodes"):
        read_experiment(experiment({"name": "edp"}, "none", backend="sockets"))
