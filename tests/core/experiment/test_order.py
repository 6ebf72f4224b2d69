"""A pipeline's order in an experiment: names become ranks, `auto` becomes names, and what is no order is refused."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from simcluster.algorithms.model_parallel.placement import StageSearch, placed
from simcluster.errors import UsageError
from simcluster.experiment.preflight import check_memory
from simcluster.experiment.read.read import read_experiment
from simcluster.experiment.run import run
from simcluster.topology import load, loads
from tests.support.clusters import uneven_star

SIM_AND_SOCKETS = ("sim", "sockets")
SEEDS_GPT = {
    "name": "gpt", "layers": 6, "width": 256, "heads": 4, "context": 128, "vocabulary": 50257, "batch_size": 32
}  # fmt: skip
GPT = {"name": "gpt", "layers": 2, "width": 16, "heads": 2, "context": 8, "batch_size": 4}


def document(workers: int = 3, workload: dict[str, Any] = GPT, **algorithm: Any) -> dict[str, Any]:
    """Workers n0, n1, ... of 1, 2, ... GFLOP/s around a switch; pipelines of a tiny GPT."""
    rates = [f"{i + 1} GFLOP/s" for i in range(workers)]
    return {
        "topology": uneven_star(*rates, bandwidth="80 Mbps", latency="100 us"),
        "algorithm": {"name": "pipeline", **algorithm},
        "workload": workload,
        "stop": {"steps": 2},
        "numerics": "none",
    }


def test_names_become_ranks_and_stay_names_in_the_file() -> None:
    found = read_experiment(document(order=["n2", "n0"], flops_per_s="topology", bandwidth_Bps="topology"))
    assert found.algorithm_settings["order"] == (2, 0)
    assert found.algorithm_settings["flops_per_s"] == (3e9, 1e9), "in the order of the stages"
    assert found.document["algorithm"]["order"] == ["n2", "n0"]
    assert read_experiment(found.document).algorithm_settings == found.algorithm_settings


@pytest.mark.parametrize(
    ("order", "told"),
    [
        (["n0", "n7"], r"algorithm.order: found \['n0', 'n7'\]; did you mean 'n2'\? \(not 'n7'\)"),
        (["n0", "n1", "n0"], r"expected each node at most once \(not 'n0' twice\)"),
        ([], "expected at least one: each in the list holds a stage"),
        (["n0", 5], "expected ranks from 0 to 2"),
        ("fastest", "algorithm.order: found 'fastest'"),
    ],
)
def test_an_order_that_is_none_is_refused_before_anything_starts(order: Any, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        read_experiment(document(order=order))


def test_a_model_with_fewer_layers_than_the_order_has_nodes_is_refused_with_both_numbers() -> None:
    linear = {"name": "quadratic"}
    with pytest.raises(UsageError, match="found 2 stages, expected at most 1 stages, one for each layer of the model"):
        read_experiment(document(workload=linear, order=["n2", "n1"]))
    assert read_experiment(document(workload=linear, order=["n2"])).algorithm_settings["order"] == (2,)


@pytest.mark.slow
def test_the_seeds_gpt_is_placed_well(tmp_path: Path) -> None:
    # In file order 218 s: the Pi 4, last in the file, computes the output layer.
    algorithm = {"name": "pipeline", "order": "auto", "flops_per_s": "topology"}
    done = run(
        topology="smolcluster", algorithm=algorithm, workload=SEEDS_GPT, stop={"steps": 3}, numerics="none",
        out=tmp_path / "run", report=False,
    )  # fmt: skip
    assert done.summary["elapsed_s"] <= 7.1
    order = done.config["algorithm"]["order"]
    assert order
    assert {*order} <= {"mini1", "mini2", "mini3", "pi5", "pi4"}
    idle = [name for name in ("mini1", "mini2", "mini3", "pi5", "pi4") if name not in order]
    assert done.summary["left_out"] == idle


def test_auto_takes_the_order_whose_predicted_step_is_shortest() -> None:
    cluster = load("smolcluster")
    source = {**document(workload=SEEDS_GPT, flops_per_s="topology"), "topology": "smolcluster"}
    plan = read_experiment(source)
    settings = {**plan.algorithm_settings, "flops_per_s": "topology"}
    replica = plan.workload.replica(0, 5, 0, 3, numerics="none")
    search = StageSearch(replica, settings, cluster)
    of_all = {order: search.step_s(order) for k in range(1, 6) for order in permutations(range(5), k)}
    assert search.step_s(placed(replica, settings, cluster, False)) == min(of_all.values())
    full = placed(replica, settings, cluster, True)
    assert search.step_s(full) == min(took for order, took in of_all.items() if len(order) == 5)
    # The search for many ranks, asked about few: it may end elsewhere, but never worse than it began.
    assert search.step_s(search.improved(False)) <= search.step_s((0, 1, 2))


@pytest.mark.slow
def test_the_predicted_step_is_about_the_simulated_one(tmp_path: Path) -> None:
    # Without the gather at the end and the norm; what remains differs by messages that meet on a link.
    for number, order in enumerate([["n0", "n1", "n2"], ["n2", "n0"], ["n1"]]):
        source = document(order=order, gather_interval=None) | {"stop": {"steps": 40}}
        plan = read_experiment(source)
        replica = plan.workload.replica(0, 3, 0, 40, numerics="none")
        step_s = StageSearch(replica, plan.algorithm_settings, plan.topology).step_s(plan.algorithm_settings["order"])
        done = run(source, out=tmp_path / str(number), report=False)
        assert done.summary["elapsed_s"] / 40 == pytest.approx(step_s, rel=0.15)


def test_many_nodes_are_searched_and_the_slow_ones_left_out() -> None:
    plan = read_experiment(document(workers=12, order="auto", flops_per_s="topology", micro_batches=12))
    again = read_experiment(document(workers=12, order="auto", flops_per_s="topology", micro_batches=12))
    assert plan.document["algorithm"]["order"] == again.document["algorithm"]["order"]
    assert "n0" not in plan.document["algorithm"]["order"]
    # The GPT has 7 layers: an entrance, two halves of each of two blocks, a norm, an output layer.
    assert len(plan.document["algorithm"]["order"]) <= 7


def test_an_order_that_no_choice_makes_possible_is_refused() -> None:
    with pytest.raises(UsageError, match=r"algorithm.micro_batches: found 5, expected a divisor of 12"):
        read_experiment(document(order="auto", micro_batches=5))


def test_checkpoints_need_every_node() -> None:
    kept = {"checkpoint": {"every": 1}, "numerics": "real"}
    with pytest.raises(UsageError, match=r"no checkpoints, since n1 would take no part: algorithm.order must have all"):
        read_experiment(document(order=["n2", "n0"]) | kept)
    assert len(read_experiment(document(order="auto") | kept).algorithm_settings["order"]) == 3


def test_a_node_that_is_left_out_needs_no_memory() -> None:
    source = document(order=["n1", "n0"])
    source["topology"]["nodes"]["n2"]["memory"] = "1 kB"
    check_memory(read_experiment(source))
    source["algorithm"]["order"] = ["n1", "n2"]
    with pytest.raises(UsageError, match="1 kB on n2"):
        check_memory(read_experiment(source))


def test_a_straggler_is_placed_by_its_mean_speed() -> None:
    source = document(order="auto", flops_per_s="topology")
    source["topology"]["nodes"]["n2"]["straggler"] = {"kind": "constant", "factor": 1000}
    assert "n2" not in read_experiment(source).document["algorithm"]["order"]
    assert loads(source["topology"]).workers == ["n0", "n1", "n2"]


@pytest.mark.slow
def test_real_nodes_in_an_order_that_leaves_out_rank_0_end_with_the_simulators_bits(tmp_path: Path) -> None:
    source = document(order=["n2", "n1"]) | {"numerics": "real"}
    done = {backend: run(source, backend=backend, out=tmp_path / backend, report=False) for backend in SIM_AND_SOCKETS}
    sim, sockets = (done[backend].summary for backend in SIM_AND_SOCKETS)
    assert sockets["weights_sha256"] == sim["weights_sha256"]
    assert sockets["left_out"] == sim["left_out"] == ["n0"]


@pytest.mark.parametrize("workers", [3, 8])
def test_auto_leaves_out_a_node_with_too_little_memory(workers: int) -> None:
    fastest = f"n{workers - 1}"
    source = document(workers=workers, order="auto", flops_per_s="topology", micro_batches=4)
    assert fastest in read_experiment(source).document["algorithm"]["order"]
    source = document(workers=workers, order="auto", flops_per_s="topology", micro_batches=4)
    source["topology"]["nodes"][fastest]["memory"] = "1 kB"
    assert fastest not in read_experiment(source).document["algorithm"]["order"]
