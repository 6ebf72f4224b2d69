"""An engine computes with one CPU thread, whatever a topology asks for: predicted so, and refused on real nodes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from simcluster.errors import UsageError
from simcluster.lm.plan.placements import rank
from simcluster.lm.plan.shape import PRESETS
from simcluster.lm.plan.shelf import ClusterModelCosts
from simcluster.lm.plan.times import Lengths
from simcluster.lm.processor import engine_topology
from simcluster.topology import Topology, load, loads
from simcluster.topology.presets.links import DEVICES

ORDERS = ("generate", "serve", "bench serving")
LOAD = ("--rate", "inf", "--requests", "1", "--prompt-tokens", "8", "--output-tokens", "2")


def two(device: Any, **keys: Any) -> dict[str, Any]:
    given = {"device": device} if isinstance(device, str) else device
    return {"nodes": {"a": given | keys, "b": given | keys}, "links": [{"between": ["a", "b"], "type": "ethernet-1g"}]}


def best(topology: Topology) -> tuple[float, float]:
    placement = rank(ClusterModelCosts(topology, PRESETS["smollm2"], Lengths()), 1).placements[0]
    return placement.tokens_per_s, placement.ttft_s


@pytest.mark.parametrize("device", DEVICES)
def test_every_choice_is_predicted_as_the_cpu(device: str) -> None:
    choices = ["auto", "cuda", "cuda:1", "mps"]
    expected = best(loads(two(device, compute="cpu")))
    assert [best(loads(two(device, compute=choice))) for choice in choices] == [expected] * len(choices)


def test_one_thread_has_its_part_of_the_arithmetic_and_given_numbers_stay() -> None:
    def flops_per_s(**keys: Any) -> float:
        device = engine_topology(loads(two("raspberry-pi-5", **keys))).nodes["a"].device
        assert device is not None
        return device.flops_per_s

    assert flops_per_s() == 60e9 / 4
    assert flops_per_s(flops="30 GFLOP/s") == 30e9


def test_a_topology_for_an_engine_stays_as_it_is() -> None:
    once = engine_topology(load("smolcluster"))
    assert engine_topology(once) is once
    plain = loads(two({"flops": "1 TFLOP/s"}))
    assert engine_topology(plain) is plain


@pytest.mark.parametrize("backend", ["sockets", "torch"])
@pytest.mark.parametrize("compute", ["cuda", "cuda:1", "mps"])
def test_real_nodes_refuse_an_accelerator(backend: str, compute: str) -> None:
    with pytest.raises(UsageError) as refused:
        engine_topology(loads(two("x86-laptop", compute=compute)), backend)
    wrong = f"found '{compute}' on a real node, expected cpu or auto: the engine computes with one CPU thread"
    assert [str(problem) for problem in refused.value.problems] == [f"nodes.{name}.compute: {wrong}" for name in "ab"]
    engine_topology(loads(two("x86-laptop", compute="auto")), backend)


@pytest.mark.parametrize("order", ORDERS)
def test_every_command_refuses_it_before_a_model_is_opened(order: str, command: Any, tmp_path: Any) -> None:
    (tmp_path / "two.yaml").write_text(json.dumps(two("jetson-orin-nano", compute="cuda")), encoding="utf-8")
    more = {"generate": ("--prompt", "hi"), "bench serving": LOAD, "serve": ()}[order]
    code, out, err = command(*order.split(), "two.yaml", "--model", "smollm2", "--backend", "sockets", *more)
    assert (code, out) == (2, "")
    assert "nodes.a.compute: found 'cuda' on a real node, expected cpu or auto" in err


@pytest.mark.parametrize(
    ("node", "line"),
    [
        ("device: jetson-orin-nano, compute: cuda", "compute: cuda is one CPU thread, which is all"),
        ("device: mac-mini-m4, compute: auto", "compute: auto is one CPU thread, which is all"),
        ("flops: 14 TFLOP/s, memory_bandwidth: 1 TB/s, compute: cuda", "compute: times of cuda without numbers of the"),
    ],
)
def test_plan_and_generate_say_so(node: str, line: str, command: Any, tmp_path: Any) -> None:
    (tmp_path / "one.yaml").write_text(f"nodes: {{a: {{{node}}}}}\n", encoding="utf-8")
    _, out, _ = command("plan", "one.yaml", "--model", "smollm2", "--requests", "1")
    assert line in out
    times = ("--weights", "q4", "--prompt-tokens", "8", "--max-tokens", "2")
    _, _, err = command("generate", "one.yaml", "--model", "8b", *times)
    assert f"times: {line}" in err


def test_a_cpu_has_no_line(command: Any, tmp_path: Any) -> None:
    (tmp_path / "one.yaml").write_text("nodes: {a: {device: raspberry-pi-5, compute: auto}}\n", encoding="utf-8")
    _, out, _ = command("plan", "one.yaml", "--model", "smollm2", "--requests", "1")
    assert "compute:" not in out
