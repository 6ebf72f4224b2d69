"""What a node is asked to compute on must be there and have the memory, or nothing starts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import simcluster
from simcluster.errors import UsageError
from simcluster.experiment import compute as checks
from simcluster.experiment.compute import check_compute, settled
from simcluster.experiment.preflight import check_memory
from simcluster.experiment.read.experiment import Experiment
from simcluster.experiment.read.read import read_experiment
from simcluster.process.accelerators import missing

CARD = {"kind": "cuda", "flops": "14 TFLOP/s"}


def experiment(backend: str = "sim", **of_a: Any) -> dict[str, Any]:
    nodes = {"a": {"flops": "1 GFLOP/s", **of_a}, "b": {"flops": "1 GFLOP/s"}}
    links = [{"between": ["a", "b"], "type": "ethernet-1g"}]
    return {
        "topology": {"nodes": nodes, "links": links},
        "algorithm": "all_reduce_dp",
        "workload": {"name": "mnist_mlp", "hidden": 4},
        "stop": {"steps": 2},
        "backend": backend,
    }


def plan_of(backend: str = "sim", **of_a: Any) -> Experiment:
    return read_experiment(experiment(backend, **of_a))


@pytest.mark.parametrize("device", ["mac-mini-m4", "raspberry-pi-5", "jetson-orin-nano"])
def test_a_preset_without_numbers_of_a_device_is_not_simulated_on_it(tmp_path: Path, device: str) -> None:
    asked = "mps" if device.startswith("jetson") else "cuda"
    has = {"mac-mini-m4": "cpu, mps or auto", "raspberry-pi-5": "cpu or auto", "jetson-orin-nano": "cpu, cuda or auto"}
    source = experiment()
    source["topology"]["nodes"]["a"] = {"device": device}
    words = f"nodes.a.compute: found '{asked}', expected {has[device]}: {device} has no numbers of it"
    with pytest.raises(UsageError, match=re.escape(words)) as error:
        simcluster.run(source | {"seed": 1}, overrides={"topology.nodes.a.compute": asked}, out=tmp_path / "run")
    assert len(error.value.problems) == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("compute", "there", "words"),
    [
        ("cpu", {}, ""),
        ("auto", {}, ""),
        ("cuda", {"cuda": 1}, ""),
        ("cuda:1", {"cuda": 2}, ""),
        ("cuda", {}, "cpu or auto: torch finds no accelerator there"),
        ("cuda:2", {"cuda": 2}, "cpu, auto or what torch finds there: cuda:0 to cuda:1"),
        ("cuda", {"mps": 1}, "cpu, auto or what torch finds there: mps"),
    ],
)
def test_what_is_missing_is_said_with_what_is_there(compute: str, there: dict[str, int], words: str) -> None:
    assert missing(compute, there) == words


@pytest.mark.parametrize("backend", ["sockets", "torch"])
def test_real_nodes_here_are_refused_what_torch_does_not_find(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, backend: str
) -> None:
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setattr(checks, "accelerators_here", dict)
    words = "nodes.a.compute: found 'cuda' on this machine, expected cpu or auto: torch finds no accelerator there"
    with pytest.raises(UsageError, match=re.escape(words)):
        simcluster.run(experiment(backend, compute="cuda"), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_nodes_on_other_machines_know_best_what_they_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "accelerators_here", dict)
    check_compute(plan_of("sockets", compute="cuda", ssh="me@a"), {})
    with pytest.raises(UsageError):
        check_compute(plan_of("sockets", compute="cuda", ssh="me@a"), {"ssh": False})


def test_an_accelerator_with_too_little_memory_is_refused_with_the_number_that_is_missing(tmp_path: Path) -> None:
    source = experiment(compute="cuda", accelerator={**CARD, "memory": "4 kB"})
    with pytest.raises(
        UsageError, match=r"nodes\.a\.accelerator\.memory: found 4 kB on a, .* too little, .*compute: cpu"
    ):
        simcluster.run(source, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_auto_is_the_cpu_if_the_accelerator_has_too_little_memory() -> None:
    small = settled(plan_of(compute="auto", accelerator={**CARD, "memory": "4 kB"}), {})
    large = settled(plan_of(compute="auto", accelerator={**CARD, "memory": "8 GB"}), {})
    assert [plan.topology.nodes["a"].device.flops_per_s for plan in (small, large)] == [1e9, 14e12]  # type: ignore[union-attr]
    assert small.document["topology"]["nodes"]["a"]["compute"] == "cpu"


def test_auto_is_refused_if_neither_has_the_memory() -> None:
    both = plan_of(compute="auto", memory="3 kB", accelerator={**CARD, "memory": "4 kB"})
    with pytest.raises(UsageError, match=r"nodes\.a\.accelerator\.memory: found 4 kB on a"):
        check_memory(settled(both, {}))


APPLE = {"device": "mac-mini-m4"}


def on_a_mac(compute: str, backend: str = "sim", **algorithm: Any) -> Experiment:
    source = experiment(backend)
    source["topology"]["nodes"]["a"] = {**APPLE, "compute": compute}
    if algorithm.get("name") == "expert_parallel":
        source["workload"] = {"name": "mnist_moe"}
    return read_experiment(source | {"algorithm": {"name": "all_reduce_dp"} | algorithm})


FEEDBACK = [
    {"compression": "top_k"}, {"compression": {"kind": "power_sgd"}}, {"name": "one_bit_adam"},
    {"name": "edp", "compression": "sign"},
]  # fmt: skip


@pytest.mark.parametrize("algorithm", FEEDBACK, ids=str)
def test_an_algorithm_that_needs_float64_is_not_run_on_mps(algorithm: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"nodes\.a\.compute: found 'mps', expected cpu or auto: MPS has no float64"):
        check_compute(on_a_mac("mps", **algorithm), {})
    plan = settled(on_a_mac("auto", **algorithm), {})
    assert plan.document["topology"]["nodes"]["a"]["compute"] == "cpu"


@pytest.mark.parametrize(
    "algorithm",
    [
        {}, {"compression": "int8"}, {"compression": {"kind": "top_k", "error_feedback": False}},
        {"name": "choco_sgd", "compression": "top_k"}, {"name": "expert_parallel"},
    ],
    ids=str,
)  # fmt: skip
def test_other_algorithms_run_on_mps(algorithm: dict[str, Any]) -> None:
    check_compute(on_a_mac("mps", **algorithm), {})
    assert settled(on_a_mac("auto", **algorithm), {}).topology.nodes["a"].compute == "auto"


def test_a_node_here_without_numbers_is_told_by_what_torch_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "accelerators_here", lambda: {"mps": 1})
    source = experiment("sockets", compute="auto") | {"algorithm": {"name": "all_reduce_dp", "compression": "top_k"}}
    assert settled(read_experiment(source), {}).topology.nodes["a"].compute == "cpu"


SHARED = {"workload.batch_size": {"total": 30, "by": "device"}}


def sizes_of(plan: Experiment) -> list[int]:
    return list(plan.document["workload"]["batch_size"].values())


def test_shares_by_device_are_those_of_the_cpu_that_is_taken_in_the_end() -> None:
    """The card has 14,000 times the rate, so all but one of 30 samples; on the CPU the nodes are equal: 15 each."""
    for memory, shares in (("8 GB", [29, 1]), ("4 kB", [15, 15])):
        source = experiment(compute="auto", accelerator={**CARD, "memory": memory})
        plan = settled(read_experiment(source, SHARED), {})
        assert sizes_of(plan) == shares
        assert list(plan.workload.batch_sizes) == shares


def test_an_order_is_chosen_for_the_cpu_that_is_taken_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its card *a* is fast enough to do all the work alone; without, the other is faster."""
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setattr(checks, "accelerators_here", dict)
    source = experiment("sockets", compute="auto", accelerator={**CARD, "memory": "8 GB"})
    source["topology"]["nodes"]["b"] = {"flops": "100 GFLOP/s"}
    source |= {"algorithm": {"name": "pipeline", "order": "auto"}}
    before = read_experiment(source)
    plan = settled(before, {})
    assert (before.document["algorithm"]["order"][0], plan.document["algorithm"]["order"][0]) == ("a", "b")


def test_the_speed_of_an_accelerator_that_this_machine_lacks_decides_no_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    for there, ssh, shares in (({}, {}, [15, 15]), ({"cuda": 1}, {}, [29, 1]), ({}, {"ssh": "me@a"}, [29, 1])):
        monkeypatch.setattr(checks, "accelerators_here", lambda there=there: there)
        source = experiment("sockets", compute="auto", accelerator={**CARD, "memory": "8 GB"}, **ssh)
        assert sizes_of(settled(read_experiment(source, SHARED), {})) == shares
