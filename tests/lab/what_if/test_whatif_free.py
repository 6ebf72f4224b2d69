"""Changes that cost nothing: who does the work, with as many samples per step as before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simcluster.experiment.execute import run_plan
from simcluster.experiment.read.experiment import Experiment
from simcluster.experiment.read.read import read_experiment
from simcluster.lab.what_if.free import free_changes
from simcluster.lab.what_if.run import whatif
from simcluster.topology import Topology, chain, complete, ring, star, torus, two_sites
from tests.support.clusters import uneven_star

GPT = {"name": "gpt", "layers": 2, "width": 16, "heads": 2, "context": 8, "batch_size": 4}


def document(algorithm: Any, batch_size: int = 8, workload: Any = None, slow: int = 10) -> dict[str, Any]:
    """Workers n0, n1, n2 around a switch; the last is slower."""
    rates = ("1 GFLOP/s", "1 GFLOP/s", f"{1000 // slow} MFLOP/s")
    return {
        "topology": uneven_star(*rates, bandwidth="10 Gbps", latency="10 us"),
        "algorithm": algorithm,
        "workload": workload or {"name": "mnist_mlp", "batch_size": batch_size},
        "stop": {"steps": 3},
        "numerics": "none",
    }


def tried(source: dict[str, Any]) -> dict[str, Experiment]:
    """Each change, applied to *source*."""
    plan = read_experiment(source)
    return {change.label: read_experiment(source, change.overrides) for change in free_changes(plan)}


def test_a_step_keeps_its_samples_whatever_is_left_out() -> None:
    found = tried(document("sync_ps", batch_size=5))
    assert set(found) == {
        "share by speed (15 samples per step)",
        "without n1 (its samples on the others)",
        "without n2 (its samples on the others)",
    }
    for plan in found.values():
        assert sum(plan.workload.sizes(len(plan.topology.workers))) == 15
    assert found["without n2 (its samples on the others)"].topology.workers == ["n0", "n1"]
    # Of 15 samples 10/21, 10/21 and 1/21.
    assert found["share by speed (15 samples per step)"].workload.batch_sizes == (7, 7, 1)


def test_averages_that_do_not_weigh_lose_a_node_only_if_the_others_can_share_evenly() -> None:
    serving = {"name": "ssp", "server_trains": False}
    assert set(tried(document(serving, batch_size=4))) == {
        "without n1 (its samples on the others)",
        "without n2 (its samples on the others)",
    }
    assert tried(document(serving, batch_size=5)) == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    "topology", [star(4), ring(4), chain(4), complete(4), torus(2, 2), two_sites(2, 2)], ids=lambda made: made.name
)
def test_a_node_of_a_generated_topology_is_left_out(topology: Topology, tmp_path: Path) -> None:
    """Rank 0 exchanges messages with three workers, then with two of them."""
    source = document("sync_ps") | {"topology": topology.document}
    plans = [read_experiment(source), *tried(source).values()]
    runs = [run_plan(plan, out=tmp_path / str(number), report=False) for number, plan in enumerate(plans)]
    names = list(runs[0].summary["nodes"])
    assert [list(run.summary["nodes"]) for run in runs[1:]] == [
        [name for name in names if name != gone] for gone in names[1:]
    ]
    messages = [run.summary["messages_sent"] for run in runs]
    assert messages == [messages[0], *[messages[0] * 2 // 3] * 3]


def test_equal_devices_have_no_other_share() -> None:
    assert not [label for label in tried(document("sync_ps", slow=1)) if label.startswith("share")]


def test_a_pipeline_is_ordered_otherwise_and_loses_any_stage() -> None:
    found = tried(document({"name": "pipeline", "order": ["n2", "n0"]}, workload=GPT))
    assert set(found) == {
        "other order (auto, cut by speed)",
        "without n0 (its stage on the others)",
        "without n2 (its stage on the others)",
    }
    assert found["without n2 (its stage on the others)"].algorithm_settings["order"] == (0,)


@pytest.mark.slow
def test_the_answer_names_what_costs_nothing_apart_from_the_bottleneck(tmp_path: Path) -> None:
    found = whatif(document("sync_ps"), "step-time", seeds=1, out=tmp_path, report=False, jobs=1)
    assert "At no cost, the most is gained by share by speed (24 samples per step)" in found.answer
    assert found.bottleneck is not None
    assert found.bottleneck.change.part == "n2"
    assert found.bottleneck.change.kind == "device"
