"""What a node is asked to compute on: read, refused, and replaced for all nodes at once."""

from __future__ import annotations

from typing import Any

import pytest

from simcluster.errors import UsageError
from simcluster.experiment.read.read import read_experiment
from simcluster.topology import loads
from simcluster.topology.model.compute import kind_of
from tests.core.topology.reading import TWO, one_problem, problems_of


def star(**of_a: Any) -> dict[str, Any]:
    """Return two workers without a preset, and a switch."""
    links = [{"between": [name, "s"], "type": "ethernet-1g"} for name in "ab"]
    nodes = {"a": {"flops": "1 GFLOP/s", **of_a}, "b": {"flops": "1 GFLOP/s"}, "s": {"kind": "switch"}}
    return {"nodes": nodes, "links": links}


@pytest.mark.parametrize("compute", ["cpu", "cuda", "cuda:0", "cuda:127", "mps", "auto"])
def test_a_node_keeps_what_it_is_asked_to_compute_on(compute: str) -> None:
    topology = loads(star(compute=compute))
    assert [topology.nodes[name].compute for name in "abs"] == [compute, "cpu", "cpu"]
    assert loads(topology.document) == topology
    assert kind_of(compute) == compute.split(":")[0]


@pytest.mark.parametrize(
    ("compute", "words"),
    [
        ("cdua", "found 'cdua'; did you mean 'cuda'?"),
        ("CPU", "did you mean 'cpu'?"),
        ("gpu", "expected cuda (NVIDIA), mps (Apple), or auto, which takes what is there"),
        ("tpu-v4-pod", "expected cpu, cuda, cuda:N, mps or auto"),
        ("cuda:128", "expected cuda, or cuda:0 to cuda:127"),
        ("cuda:" + "9" * 5000, "expected cuda, or cuda:0 to cuda:127"),
        ("cuda:01", "expected cuda, or cuda:0 to cuda:127"),
        ("cuda:-1", "expected cuda, or cuda:0 to cuda:127"),
        (0, "expected cpu, cuda, cuda:N, mps or auto"),
        (["cuda"], "expected cpu, cuda, cuda:N, mps or auto"),
    ],
)
def test_an_unknown_device_is_refused_with_what_there_is(compute: object, words: str) -> None:
    problem = one_problem(star(compute=compute))
    assert problem.startswith("t.yaml: nodes.a.compute: ")
    assert words in problem


def test_a_switch_computes_nothing() -> None:
    cluster = star()
    cluster["nodes"]["s"]["compute"] = "cpu"
    assert "nodes.s.compute: found it on a switch" in one_problem(cluster)


def test_a_star_in_place_of_a_name_means_every_worker() -> None:
    topology = loads(star(compute="auto"), overrides={"nodes.*.compute": "cuda:1", "nodes.b.compute": "cpu"})
    assert [topology.nodes[name].compute for name in "ab"] == ["cuda:1", "cpu"]
    assert topology.document["nodes"]["s"] == {"kind": "switch"}


def test_a_star_also_means_the_workers_that_a_generator_makes() -> None:
    made = {"generator": "star", "workers": 3, "device": "raspberry-pi-5"}
    topology = loads(made, overrides={"nodes.*.compute": "auto"})
    assert [topology.nodes[name].compute for name in topology.workers] == ["auto"] * 3


def test_a_star_with_an_unknown_key_is_refused_once() -> None:
    assert problems_of(TWO, **{"nodes__*__comput": "cpu"}) == [
        "override nodes.*.comput: unknown key 'comput'; did you mean 'compute'?"
    ]


def experiment(**of_a: Any) -> dict[str, Any]:
    return {"topology": star(**of_a), "algorithm": "all_reduce_dp", "workload": "quadratic", "stop": {"steps": 1}}


def test_the_option_asks_every_node_and_reaches_the_nodes_in_the_document() -> None:
    plan = read_experiment(experiment(compute="mps"), compute="auto")
    assert [plan.topology.nodes[name].compute for name in plan.topology.workers] == ["auto", "auto"]
    at_the_node = read_experiment(plan.document)
    assert at_the_node.topology.nodes["a"].compute == "auto"


def test_set_replaces_the_option_at_one_node() -> None:
    plan = read_experiment(experiment(), {"topology.nodes.b.compute": "cpu"}, compute="auto")
    assert [plan.topology.nodes[name].compute for name in "ab"] == ["auto", "cpu"]


def test_an_unknown_device_as_option_is_one_problem_with_all_others() -> None:
    with pytest.raises(UsageError) as error:
        read_experiment(experiment() | {"seed": -1}, compute="cudo")
    found = [str(problem) for problem in error.value.problems]
    assert "compute: found 'cudo'; did you mean 'cuda'?" in found
    assert len(found) == 2
