"""Layouts of experts with pipeline and tensor directions: where ranks are, what they train, send and hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import simcluster
from simcluster.algorithms import ALGORITHMS
from simcluster.algorithms.model_parallel.expert_layout import ExpertLayout
from simcluster.algorithms.model_parallel.expert_memory import expert_phases
from simcluster.algorithms.model_parallel.parallel_layout import LayoutPlace, counts_of
from simcluster.documents.settings import settings_of
from simcluster.errors import UsageError
from simcluster.lab.verify.claims.experts import expert_parallel as one_process
from simcluster.workloads import Workload, gpt, mnist_moe, sgd, train_alone
from simcluster.workloads.layers.experts import ExpertLayer
from tests.core.algorithms.model_parallel.runs import cause, run, same, well
from tests.core.algorithms.model_parallel.test_expert_parallel import MOE, PLAIN
from tests.core.algorithms.trained import SEED
from tests.support.clusters import star

GPT: dict[str, Any] = {
    "width": 16, "heads": 4, "context": 8, "batch_size": 2, "experts": 4, "clip_norm": None, "optimizer": "sgd",
    "tied": False,
}  # fmt: skip


def test_tensor_ranks_follow_one_another_and_stages_are_farthest_apart() -> None:
    counts = counts_of({"pipeline": 2, "data": 2, "expert": 3, "tensor": 2}, 24, 6)
    # rank = ((stage x 2 + data) x 3 + expert) x 2 + tensor: 17 = ((1 x 2 + 0) x 3 + 2) x 2 + 1.
    place = LayoutPlace(17, counts)
    assert [place.at(one) for one in ("pipeline", "data", "expert", "tensor")] == [1, 0, 2, 1]
    assert place.along("tensor") == [16, 17]
    assert place.along("expert") == [13, 15, 17]
    assert place.along("pipeline") == [5, 17]
    assert place.along("data", "expert") == [13, 15, 17, 19, 21, 23]


@pytest.mark.parametrize(
    "layout", [{"pipeline": 2, "expert": 2}, {"pipeline": 2, "data": 2}, {"pipeline": 4}], ids=["e", "d", "p"]
)
@pytest.mark.parametrize(
    "workload",
    [MOE, gpt(**GPT | {"clip_norm": 0.1}), gpt(**GPT | {"tied": True, "clip_norm": 0.1})],
    ids=["mnist_moe", "clipped", "tied"],
)
def test_stages_and_micro_batches_train_what_one_process_trains(layout: dict[str, int], workload: Workload) -> None:
    replicas, _ = well("expert_parallel", workload, star(4), layout=layout)
    same(replicas[0].parameters, train_alone(workload, 4, SEED, 3))


def test_rank_0_evaluates_with_the_biases_of_all_stages() -> None:
    workload = gpt(**GPT)
    settings = PLAIN | {"bias_rate": 0.05}
    layout = {"layout": {"pipeline": 4}, "micro_batches": 1}
    replicas, _ = well("expert_parallel", workload, star(4), **settings, **layout)
    same(replicas[0].parameters, list(one_process(workload, 4, SEED, 3, settings)[0]))
    layers = [module for module in replicas[0]._model.modules() if isinstance(module, ExpertLayer)]
    assert len(layers) == 2
    assert all(layer.bias.abs().sum() > 0 for layer in layers)


@pytest.mark.slow
def test_a_resumed_pipeline_ends_with_the_bits_of_one_that_never_stopped(tmp_path: Path) -> None:
    layout = {"layout": {"pipeline": 2, "expert": 2}, "micro_batches": 4}
    keys = {
        "topology": {"generator": "star", "workers": 4},
        "algorithm": {"name": "expert_parallel", "bias_rate": 0.05, **layout},
        "workload": {"name": "mnist_moe", "hidden": 12, "batch_size": 8, "momentum": 0.9},
        "stop": {"steps": 6}, "checkpoint": {"every": 3, "keep": 2},
    }  # fmt: skip
    whole = simcluster.run(keys, out=tmp_path / "whole", report=False).summary
    rest = simcluster.resume(tmp_path / "whole", step=3, out=tmp_path / "rest", report=False).summary
    assert rest["weights_sha256"] == whole["weights_sha256"]


def test_the_wire_carries_the_bytes_of_each_direction() -> None:
    # One replica on 2 stages x 2 tensor ranks, 8 samples of 8 tokens in 2 micro-batches of 32 tokens, width 16. A sum
    # over two ranks sends 2 vectors: in each of 2 layers, attention's 32 x 16 numbers forward and back, the experts'
    # 32 x 16 forward, and back with a gradient for both experts' weights, 32 x 18. Then 2 ranks x 2 ways of 32 x 16.
    layout = {"layout": {"pipeline": 2, "tensor": 2}, "micro_batches": 2, "numerics": "none"}
    two, three = (well("expert_parallel", gpt(**GPT), star(4), steps, **layout)[1] for steps in (2, 3))
    sent, messages = (
        sum(getattr(b, key) - getattr(a, key) for a, b in zip(two, three, strict=True))
        for key in ("bytes_sent", "messages_sent")
    )
    sums = 2 * 2 * (32 * 16 + 32 * 16 + 32 * 16 + 32 * 18)
    body = 4 * 2 * (sums + 2 * 2 * 32 * 16)
    # A sum is 2 rounds of 2 messages; there are 4 in each layer.
    assert messages == 2 * (2 * 4 * 4 + 2 * 2)
    assert 0 < sent - body < 100 * messages


def test_tensor_ranks_may_share_experts_alone() -> None:
    # mnist_moe has no other layer that can be split. Two ranks have twice the samples, so half of the experts' work is
    # that of one rank alone; the work of other layers is twice as much.
    alone, shared = (
        well("expert_parallel", mnist_moe(hidden=64, expert_width=512, batch_size=8), star(size), 2, numerics="none",
             layout={"tensor": size})[1]
        for size in (1, 2)
    )  # fmt: skip
    assert alone[0].compute_s < shared[0].compute_s < 2 * alone[0].compute_s
    assert shared[0].bytes_sent > 2 * 4 * 16 * 64


def test_tensor_ranks_compute_their_shares_of_experts() -> None:
    # Per token: 4 products of d x d of attention, 2 x 2 d f of two experts, and what is whole on each rank.
    wide = gpt(**GPT | {"width": 64, "feed_forward": 512})
    alone, shared = (
        well("expert_parallel", wide, star(size), 2, numerics="none", layout={"tensor": size})[1][0].compute_s
        for size in (1, 2)
    )
    # The ranks of two have the samples of two.
    assert 0.5 < shared / (2 * alone) < 0.6


@pytest.mark.parametrize(
    "layout", [{"pipeline": 2, "expert": 2}, {"data": 2, "tensor": 2}, {"pipeline": 2, "tensor": 2}]
)
def test_the_ranks_of_a_replica_hold_one_model_together(layout: dict[str, int]) -> None:
    workload = gpt(**GPT)
    replica = workload.replica(0, 4, SEED, 1, numerics="none")
    defaults = {one.name: one.default for one in settings_of(ALGORITHMS["expert_parallel"])}
    settings = defaults | {"layout": layout}
    phases = expert_phases(replica, settings, workload.memory("none"), True)
    gradients = sum(of_rank[0].gradients for of_rank in phases)
    place = ExpertLayout(replica, 0, 4, layout)
    whole = {at: shape.nbytes for at, shape in enumerate(replica.shapes)}
    # Each weight is on every replica, and whole on all its ranks unless it is divided.
    ranks = {at: 4 // place.counts["pipeline"] // (1 if at not in place.owners else place.expert) for at in whole}
    assert gradients == sum(
        size * ranks[at] // (place.tensor if place.is_split(at) else 1) for at, size in whole.items()
    )


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (
            {"layout": {"pipeline": 2, "data": 3}},
            "pipeline 2 x data 3 x expert 1 = 6 ranks, expected the 4 ranks of the topology: "
            "{data: 2, pipeline: 2, expert: 1}, or {data: 1, pipeline: 2, expert: 2}",
        ),
        ({"layout": {"pipeline": 8}}, "pipeline 8 x data 1 x expert 1 = 8 ranks, expected the 4 ranks of the topology"),
        ({"layout": {"pipeline": 4}, "micro_batches": 3}, "found 3, expected a divisor of 32"),
        ({"layout": {"pipeline": 5}, "size": 5}, "layout: found pipeline 5 and 5 stages, expected at most 4 stages"),
        ({"layout": {"tensor": 4}}, "expected tensor 1, or numerics: none, since only its time is simulated"),
    ],
)
def test_layouts_that_do_not_fit_are_refused_with_what_would(settings: dict[str, Any], problem: str) -> None:
    size = settings.pop("size", 4)
    error = cause(run("expert_parallel", MOE, star(size), **settings)[0][0])
    assert isinstance(error, UsageError)
    assert problem in str(error)


def test_a_default_that_does_not_divide_is_told_as_one() -> None:
    # 2 stages with 3 + 2 samples.
    error = cause(run("expert_parallel", MOE.with_batches([3, 2]), star(2), layout={"pipeline": 2})[0][0])
    assert "micro_batches: found 2, one per stage, the default, expected a divisor of 5, which divides" in str(error)


def test_heads_that_do_not_divide_are_refused() -> None:
    settings = {"layout": {"tensor": 3}, "numerics": "none"}
    error = cause(run("expert_parallel", gpt(**GPT | {"batch_size": 3}), star(3), **settings)[0][0])
    assert "layout: found tensor 3 and 4 heads, expected a multiple of the 3 ranks" in str(error)


def test_experts_that_do_not_divide_are_refused() -> None:
    settings = {"layout": {"tensor": 4}, "numerics": "none"}
    error = cause(run("expert_parallel", gpt(**GPT | {"feed_forward": 6}), star(4), **settings)[0][0])
    assert "layout: found tensor 4 and feed_forward 6, expected a multiple of the 4 ranks" in str(error)


def test_stages_do_not_share_running_statistics() -> None:
    def model() -> nn.Module:
        experts = [nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)) for _ in range(2)]
        layer = ExpertLayer(nn.LayerNorm(8), nn.Linear(8, 2), experts, 1)
        return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), layer, nn.Linear(8, 2))

    train = torch.zeros(16, 4), torch.zeros(16, dtype=torch.long)
    workload = Workload(model, nn.functional.cross_entropy, train, sgd(0.1), 2)
    error = cause(run("expert_parallel", workload, star(2), layout={"pipeline": 2})[0][0])
    assert "found running statistics: 1.running_mean, 1.running_var, expected none, or pipeline 1" in str(error)
