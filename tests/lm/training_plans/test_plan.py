"""The ranking of trainings: what it chooses, what it refuses, and that a run of a row needs and takes what it says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

import simcluster
from simcluster.errors import UsageError
from simcluster.experiment.needed_memory import needed_memory
from simcluster.experiment.read.read import read_experiment
from simcluster.lm.headers.config import shape_of_config
from simcluster.lm.headers.header import ModelFacts
from simcluster.lm.plan.shape import PRESETS, ModelShape
from simcluster.lm.training_plans.candidates import defaults
from simcluster.lm.training_plans.model import blocks_of, memory_of, settings_of
from simcluster.lm.training_plans.plan import PlanRow, TrainingPlan, plan_training
from simcluster.lm.training_plans.table import lines
from simcluster.topology import Topology, load, loads
from simcluster.workloads.models.gpt import shape_of as gpt_shape_of
from tests.lm.headers.public import PUBLIC
from tests.support.levels import sample_of

TINY = ModelShape("tiny", 4, 64, 8, 8, 8, 128, 256, False, 4.0)


def star(count: int, memory: str = "8 GB", bandwidth: str = "1 Gbps", latency: str = "50 us") -> Topology:
    nodes: dict[str, Any] = {f"n{i}": {"flops": "1 TFLOP/s", "memory": memory} for i in range(count)}
    links = [{"between": [name, "sw"], "bandwidth": bandwidth, "latency": latency} for name in nodes]
    return loads(yaml.safe_dump({"name": "star", "nodes": nodes | {"sw": {"kind": "switch"}}, "links": links}))


def labels(plan: TrainingPlan) -> list[str]:
    return [row.candidate.label for row in plan.rows]


def experiment_of(plan: TrainingPlan, row: PlanRow) -> dict[str, Any]:
    """The experiment that JSON describes."""
    told = next(one for one in plan.to_dict()["trainings"] if one["training"] == row.candidate.label)
    return {
        "topology": plan.topology.document,
        "algorithm": json.loads(json.dumps(told["algorithm"])),
        "workload": {**plan.to_dict()["workload"], "batch_size": row.parts[0].samples},
        "stop": {"steps": 2},
        "numerics": "none",
        "check_memory": False,
    }


@pytest.mark.slow
def test_every_row_needs_the_memory_that_a_run_of_it_predicts() -> None:
    plan = plan_training(star(4), TINY, 8, 64)
    assert {"zero 1", "zero 2", "zero 3", "pipeline", "tensor_parallel", "all_reduce_dp", "alone"} == set(labels(plan))
    for row in plan.rows:
        if len(row.parts) < 4:
            continue
        found = needed_memory(read_experiment(experiment_of(plan, row)))
        # Rank 0 also evaluates the model, which is not part of the plan.
        expected = {name: needed.memory for name, needed in found.items() if name != "n0"}
        assert {part.node: part.memory for part in row.parts if part.node != "n0"} == expected, row.candidate.label
        assert row.parts[0].memory.total <= found["n0"].memory.total


@pytest.mark.slow
def test_experts_are_planned_in_stages_where_links_are_slow(tmp_path: Path) -> None:
    small = {"num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
             "head_dim": 16, "num_experts": 8, "moe_intermediate_size": 64, "vocab_size": 256}  # fmt: skip
    shape = shape_of_config(ModelFacts(tmp_path, PUBLIC["qwen3-30b-a3b"][0] | small), "small")
    plan = plan_training(star(4, bandwidth="100 Mbps"), shape, 8, 64)
    (row,) = [row for row in plan.rows if row.candidate.label == "expert_parallel"]
    assert row.candidate.told["layout"]["pipeline"] > 1
    needed = needed_memory(read_experiment(experiment_of(plan, row)))
    assert {part.node: part.memory for part in row.parts[1:]} == {
        name: found.memory for name, found in needed.items() if name != "n0"
    }
    ends = [
        simcluster.run(experiment_of(plan, row) | {"stop": {"steps": steps}}, out=tmp_path / str(steps), report=False)
        for steps in (2, 3)
    ]
    step_s = ends[1].summary["elapsed_s"] - ends[0].summary["elapsed_s"]
    # Hops between stages share links with what else a rank sends, which the plan leaves out.
    assert 0.9 * step_s < row.step.step_s <= step_s * (1 + 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("layout", [{"tensor": 2, "expert": 2}, {"pipeline": 2, "tensor": 2}])
def test_a_layout_of_many_blocks_needs_what_a_run_of_it_predicts(layout: dict[str, int]) -> None:
    settings = defaults("expert_parallel") | {"layout": layout, "micro_batches": 4}
    model = {"size": "7b", "layers": 5, "width": 64, "heads": 4, "kv_heads": 2, "head_width": 16, "feed_forward": 64,
             "vocabulary": 256, "context": 32, "tied": False, "clip_norm": None, "experts": 8, "active": 2}  # fmt: skip
    blocks = blocks_of(model)
    needed = memory_of("expert_parallel", settings, blocks, blocks.replica([4] * 4))
    run = {
        "topology": star(4).document, "algorithm": {"name": "expert_parallel", **settings}, "stop": {"steps": 2},
        "workload": {"name": "gpt", **model, "batch_size": 4}, "numerics": "none", "check_memory": False,
    }  # fmt: skip
    found = needed_memory(read_experiment(json.loads(json.dumps(run))))
    assert needed[1:] == [found[name].memory for name in ("n1", "n2", "n3")]


@pytest.mark.slow
def test_rows_are_ranked_by_samples_per_second() -> None:
    plan = plan_training(star(4), TINY, 8, 64)
    rates = [row.samples_per_s for row in plan.rows]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] * plan.rows[0].step.step_s == pytest.approx(8, rel=1e-12)


@pytest.mark.slow
def test_local_steps_are_ranked_only_where_communication_binds() -> None:
    slow = plan_training(star(4, bandwidth="1 Mbps"), TINY, 8, 64)
    assert {row.candidate.algorithm for row in slow.less_often} == {"local_sgd", "diloco"}
    fast = plan_training(star(4, bandwidth="100 Tbps", latency="0 us"), TINY, 8, 64)
    assert fast.less_often == ()
    whys = {one.label: one.why for one in fast.refused if not one.missing_bytes}
    assert whys.keys() == {"local_sgd", "diloco"}
    assert "of a step on communication" in whys["diloco"]


@pytest.mark.slow
def test_what_fits_no_node_is_refused_with_what_is_missing() -> None:
    plan = plan_training(star(4, "1 GB"), PRESETS["smollm2"], 4, 256)
    refused = {one.label: one for one in plan.refused}
    # 134,515,008 weights and 256 positions of 576 (learned here): 4 bytes each of weights, gradients and the old and
    # new values that all-reduce holds, 8 of AdamW: more than 1 GB before any activation.
    least = 16 * (PRESETS["smollm2"].weights + 256 * 576) - 10**9
    assert "alone" not in labels(plan)
    assert refused["alone"].missing_bytes > least
    assert refused["all_reduce_dp"].missing_bytes > refused["zero 3"].missing_bytes > 0


def test_a_slow_node_is_left_out_with_what_it_would_cost() -> None:
    topology = star(3)
    slow = replace(topology.nodes["n2"], device=replace(topology.nodes["n2"].device, flops_per_s=1e8))  # type: ignore[type-var, arg-type]
    plan = plan_training(replace(topology, nodes=topology.nodes | {"n2": slow}), TINY, 6, 64)
    assert "n2" not in plan.rows[0].candidate.names
    ((name, rate),) = [one for one in plan.left_out if one[0] == "n2"]
    assert name == "n2"
    assert rate is not None
    assert 0 < rate < plan.rows[0].samples_per_s


@pytest.mark.slow
def test_a_group_of_a_site_is_tried() -> None:
    plan = plan_training(load("halos-4-regions"), PRESETS["smollm2"], 16, 256)
    assert {len(row.parts) for row in plan.rows if row.candidate.label != "alone"} <= {2, 3, 4}


@pytest.mark.parametrize(
    ("shape", "samples", "tokens", "said"),
    [
        (TINY, 0, 64, "--batch-size: found 0"),
        (TINY, 4, 0, "--sample-tokens: found 0"),
        (replace(TINY, cached=16), 4, 64, "found latent attention, expected heads of"),
    ],
)
def test_a_wrong_request_is_refused(shape: ModelShape, samples: int, tokens: int, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        plan_training(star(2), shape, samples, tokens)


@pytest.mark.parametrize(
    ("model", "expert", "total", "active"),
    [("qwen3-30b-a3b", 768, 30.53, 3.35), ("gpt-oss-20b", 2880, 20.91, 4.19)],
)
def test_published_mixtures_of_experts_are_written_with_their_parameters(
    model: str, expert: int, total: float, active: float
) -> None:
    """Attention L (2 heads + 2 KV heads) head_width d, experts 3 L E d f, routers L E d, two tables of V d, P d
    positions, and 2 L + 1 norms of d; a token passes only some of the experts.

    Qwen3 has L 48, d 2048, 32 and 4 heads of 128, E 128, f 768, V 151,936: 0.906 + 28.991 + 0.013 + 0.622 = 30.53
    billion, 30.5 as published; of its experts 8 are 1.812: 3.35 (3.3). gpt-oss has L 24, d 2880, 64 and 8 heads of
    64, E 32, f 2880, V 201,088: 0.637 + 19.110 + 0.002 + 1.158 = 20.91 billion (20.9 with biases); of its experts 4
    are 2.389: 4.19 (3.6 without one table).
    """
    config = PUBLIC[model][0]
    heads, kv_heads, layers = (
        config[f"num_{name}"] for name in ("attention_heads", "key_value_heads", "hidden_layers")
    )
    width, experts = config["hidden_size"], config.get("num_experts") or config["num_local_experts"]
    rest = layers * (2 * (heads + kv_heads) * config["head_dim"] + experts + 2) * width
    rest += (2 * config["vocab_size"] + 64 + 1) * width
    each = 3 * layers * expert * width
    found = settings_of(shape_of_config(ModelFacts(Path(model), config), model), 64)
    shape = gpt_shape_of(tokenizer="bytes", **{name: value for name, value in found.items() if name != "clip_norm"})
    assert shape.parameters == rest + experts * each == pytest.approx(total * 1e9, rel=1e-3)
    assert rest + shape.active * each == pytest.approx(active * 1e9, rel=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", sample_of(["smolcluster", "two-sites-wan", "star-8-gigabit"]))
@pytest.mark.parametrize("model", ["smollm2", "70b"])
def test_a_plan_fits_eighty_columns(name: str, model: str) -> None:
    assert max(map(len, lines(plan_training(load(name), PRESETS[model])))) <= 80
