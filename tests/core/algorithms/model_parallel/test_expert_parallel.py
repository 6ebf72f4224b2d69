"""Expert parallelism against one process, to the bit; what it drops, sends and records; what does not fit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import simcluster
from simcluster.algorithms.model_parallel import expert_passes
from simcluster.algorithms.model_parallel.expert_load import counts_by, kept_of, shares_of
from simcluster.algorithms.model_parallel.merged_exchange import merged_tokens
from simcluster.errors import UsageError
from simcluster.lab.verify.claims.experts import expert_parallel as one_process
from simcluster.workloads import gpt, mnist_moe, train_alone
from simcluster.workloads.layers.experts import ExpertLayer
from tests.core.algorithms.model_parallel import runs
from tests.core.algorithms.model_parallel.runs import SEED, cause, same, values
from tests.support.clusters import star

MOE = mnist_moe(hidden=12, experts=6, expert_width=8, batch_size=8)
WIDE = gpt(
    layers=1, width=16, heads=4, kv_heads=2, head_width=6, context=8, batch_size=2, experts=6, clip_norm=None,
    feed_forward=8, optimizer="sgd",
)  # fmt: skip
PLAIN: dict[str, Any] = {
    "capacity_factor": None, "balance_loss": 0.0, "z_loss": 0.0, "bias_rate": 0.0, "schedule": "naive"
}  # fmt: skip


def run(*args: Any, **more: Any) -> Any:
    return runs.run("expert_parallel", *args, **more)


def well(*args: Any, **more: Any) -> Any:
    return runs.well("expert_parallel", *args, **more)


@pytest.fixture
def _one_thread() -> Iterator[None]:
    """As in a simulated run: with more threads, torch cuts large products in other places."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("_one_thread")
@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize(
    "settings",
    [
        {}, {"capacity_factor": 0.6}, {"balance_loss": 0.5, "z_loss": 0.1}, {"bias_rate": 0.05},
        {"merge": True}, {"merge": True, "capacity_factor": 0.6}, {"of": WIDE},
    ],
    ids=["dropless", "drops", "losses", "bias", "merged", "merged drops", "gpt"],
)  # fmt: skip
def test_ranks_end_with_the_bits_of_one_process(size: int, settings: dict[str, Any]) -> None:
    given = PLAIN | settings
    workload = given.pop("of", MOE)
    replicas, _ = well(workload, star(size), **given)
    (alone,) = one_process(workload, size, SEED, 3, given)
    for mine, expected in zip(replicas[0].parameters, alone, strict=True):
        assert torch.equal(mine, expected)


def test_without_drops_it_is_ordinary_training_and_everything_is_trained() -> None:
    for workload in (
        mnist_moe(hidden=12),
        gpt(width=16, heads=4, context=8, batch_size=2, experts=4, clip_norm=0.1, optimizer="sgd"),
    ):
        replicas, _ = well(workload, star(2))
        same(replicas[0].parameters, train_alone(workload, 2, SEED, 3))
        born = workload.replica(0, 2, SEED, 1)
        moved = [not torch.equal(*pair) for pair in zip(born.parameters, replicas[0].parameters, strict=True)]
        assert all(moved), [name for name, ok in zip(born.names, moved, strict=True) if not ok]


def test_data_groups_sum_the_gradients_of_the_experts_that_they_share() -> None:
    # Of 4 ranks, two groups of two hold 6 experts: each expert's gradient is a sum of two, in another order than alone.
    settings = PLAIN | {"capacity_factor": 0.6}
    replicas, _ = well(MOE, star(4), **settings)
    same(replicas[0].parameters, list(one_process(MOE, 4, SEED, 3, settings)[0]))


def test_a_capacity_is_of_all_ranks_tokens_in_rank_order() -> None:
    # 8 copies for 2 experts: room for 4 each. A rank that counted its own 4 would have room for 2.
    assert kept_of(np.array([[4, 0], [0, 4]]), 1.0, 1).tolist() == [[4, 0], [0, 4]]
    # 12 copies, room for 6: rank 0's 5 fit, then one of rank 1's, none of rank 2's.
    assert kept_of(np.array([[5, 0], [3, 0], [2, 2]]), 1.0, 1).tolist() == [[5, 0], [1, 0], [0, 2]]


@pytest.mark.parametrize(
    ("experts", "tokens", "factor", "share"),
    [(4, 256, 1.0, 0.043126), (8, 256, 1.0, 0.065794), (8, 256, 1.25, 0.005390), (16, 256, 1.25, 0.020774)],
)
def test_a_random_router_drops_the_binomials_excess(experts: int, tokens: int, factor: float, share: float) -> None:
    # N E[(X - C)+] / T with X binomial (T, 1/N) and C = ceil(T / N x factor).
    drawn = np.random.default_rng(0).multinomial(tokens, [1 / experts] * experts, size=4000)
    dropped = [1 - kept_of(counts[None], factor, 1).sum() / tokens for counts in drawn]
    assert np.mean(dropped) == pytest.approx(share, abs=4 * np.std(dropped) / 4000**0.5)


@pytest.mark.parametrize(("merge", "exchanges", "rows", "ways"), [(False, 4, 8, 0), (True, 6, 6, 8 * (2 * 4 + 4))])
def test_the_wire_carries_what_the_exchanges_must(merge: bool, exchanges: int, rows: int, ways: int) -> None:
    # Rank 0 of 2, a step without gathering: 8 tokens x 2 copies, of which 3 of 6 experts are away: 8 copies of 12
    # floats four times; counts and probabilities of 6 experts; a ring's 2 (n-1)/n of the replicated gradients.
    # Merged, 1 - C(3, 2) / C(6, 2) = 4/5 of the tokens have an expert there: 6 rows four times; of each copy, its
    # number, its weight and a gradient.
    _, two = well(MOE, star(2), 2, numerics="none", merge=merge)
    _, three = well(MOE, star(2), 3, numerics="none", merge=merge)
    sent, messages = (getattr(three[0], key) - getattr(two[0], key) for key in ("bytes_sent", "messages_sent"))
    replicated = 785 * 12 + 2 * 12 + 12 * 6 + 13 * 10
    body = 4 * (rows * 12 * 4) + ways + 2 * 6 * 4 + 4 * replicated
    assert messages == exchanges + 1 + 2
    assert 0 < sent - body < 100 * messages


@pytest.mark.parametrize(
    ("experts", "active", "ranks", "copies"), [(8, 2, 4, 1.857143), (8, 2, 8, 2.0), (64, 6, 8, 4.535516)]
)
def test_merged_tokens_are_those_of_distinct_ranks(experts: int, active: int, ranks: int, copies: float) -> None:
    # n (1 - C(E - E/n, k) / C(E, k)) ranks per token.
    assert ranks * merged_tokens(10**9, experts, active, ranks) / 10**9 == pytest.approx(copies, abs=1e-6)


def test_of_merged_tokens_those_are_lost_whose_copies_are_all_dropped() -> None:
    # Of 6 experts in threes, 3 of 15 pairs have both here, 9 have one: 1 - 3/15 - 9/15 / 2 - 3/15 / 4 at a half kept.
    assert merged_tokens(1000, 6, 2, 2, 0.5) == 450
    assert merged_tokens(1000, 6, 2, 2, 0.0) == 0


def test_more_copies_than_float32_counts_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expert_passes, "MOST_COPIES", 15)
    error = cause(run(MOE, star(2))[0][0])
    assert "batch_size: found 16 copies of tokens, expected at most 15 per rank" in str(error)


def test_merged_sums_of_three_experts_are_by_rank() -> None:
    # Three experts of a token on two ranks: (a + b) + c or a + (b + c), not always the bits of one process.
    workload = mnist_moe(hidden=12, experts=6, active=3, expert_width=8, batch_size=8)
    replicas, _ = well(workload, star(2), merge=True)
    same(replicas[0].parameters, train_alone(workload, 2, SEED, 3))


def test_a_step_takes_what_the_busiest_rank_takes() -> None:
    # The experts of rank 1 take three of four copies.
    workload = mnist_moe(hidden=12, experts=6, expert_width=8, batch_size=12)
    even, uneven = (well(workload, star(2), numerics="none", load=load)[1] for load in ((1,) * 6, (1, 1, 1, 3, 3, 3)))
    assert uneven[1].compute_s > even[1].compute_s == pytest.approx(even[0].compute_s)
    # E = 6 of 2 each: the busiest takes 1.5 of the mean.
    assert values(uneven[1], "busiest") == pytest.approx([1.5] * 3)


def test_without_numerics_one_rank_takes_the_same_time() -> None:
    real, none = (well(MOE, star(1), numerics=numerics)[1] for numerics in ("real", "none"))
    assert real[0].compute_s == pytest.approx(none[0].compute_s, rel=1e-12)


def test_an_expert_of_three_products_takes_six_d_f_per_token() -> None:
    small = gpt(size="7b", layers=1, width=8, heads=2, feed_forward=20, vocabulary=256, context=4, experts=4)
    replica = small.replica(0, 1, SEED, 1, numerics="none")
    cost = replica.rows_cost(2, "experts.3", 7, 8)
    assert cost.forward.flops == 6 * 7 * 8 * 20
    assert cost.backward.flops == 2 * cost.forward.flops
    assert replica.rows_cost(2, "router", 7, 8).forward.flops == 2 * 7 * 8 * 4


class Collapsed(nn.Linear):
    """A router that sends every token to expert 0."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return super().forward(inputs) * 0 + torch.tensor([60.0] + [0.0] * (self.out_features - 1))


def test_a_router_that_collapses_shows_in_what_is_recorded(monkeypatch: Any) -> None:
    first = ExpertLayer.__init__

    def collapsed(self: Any, norm: nn.Module, router: nn.Linear, experts: Any, active: int) -> None:
        first(self, norm, Collapsed(router.in_features, router.out_features, bias=False), experts, active)

    monkeypatch.setattr(ExpertLayer, "__init__", collapsed)
    _, records = well(mnist_moe(hidden=12, experts=4, active=1, batch_size=8), star(2), capacity_factor=1.0)
    # All 16 tokens to one of 4 experts, with room for 4: 12 dropped; the loss is E f P = 4 x 1 x 1.
    assert values(records[1], "busiest") == [4.0] * 3
    assert values(records[1], "dropped") == [0.75] * 3
    assert values(records[1], "balance") == pytest.approx([4.0] * 3)


@pytest.mark.parametrize("load", ["uniform", "zipf(0)", [2, 2, 2, 2]])
def test_merging_takes_a_load_that_is_uniform_in_any_form(load: Any, tmp_path: Path) -> None:
    keys = {"topology": {"generator": "star", "workers": 2}, "algorithm": "expert_parallel", "workload": "mnist_moe"}
    changes = {"algorithm.merge": True, "algorithm.load": load, "numerics": "none", "stop.steps": 1}
    assert simcluster.run(keys, overrides=changes, out=tmp_path / "run", report=False).summary["steps"] == 1


def test_the_bias_evens_the_load() -> None:
    workload = mnist_moe(hidden=12, experts=6, active=1, batch_size=32)
    plain, steered = (well(workload, star(2), 16, bias_rate=rate)[1] for rate in (0.0, 0.03))
    assert np.mean(values(steered[1], "busiest")[8:]) < 0.8 * np.mean(values(plain[1], "busiest")[8:])


def test_a_resumed_run_ends_with_the_bits_of_one_that_never_stopped(tmp_path: Path) -> None:
    keys = {
        "topology": {"generator": "star", "workers": 2}, "algorithm": {"name": "expert_parallel", "bias_rate": 0.05},
        "workload": {"name": "mnist_moe", "hidden": 12, "batch_size": 8, "momentum": 0.9}, "stop": {"steps": 6},
        "checkpoint": {"every": 3, "keep": 2},
    }  # fmt: skip
    whole = simcluster.run(keys, out=tmp_path / "whole", report=False).summary
    rest = simcluster.resume(tmp_path / "whole", step=3, out=tmp_path / "rest", report=False).summary
    assert rest["weights_sha256"] == whole["weights_sha256"]


def test_a_load_is_divided_by_largest_remainders() -> None:
    assert counts_by(shares_of("uniform", 3, 1), [4, 3]).tolist() == [[2, 1, 1], [1, 1, 1]]
    assert shares_of("zipf(1)", 2, 1) == pytest.approx([2 / 3, 1 / 3])


def test_a_uniform_load_is_uniform_over_all_ranks() -> None:
    # 4 ranks with 5 x 2 copies for 8 experts: 40 copies, 5 for each, so nothing is dropped.
    counts = counts_by(shares_of("uniform", 8, 2), [10] * 4)
    assert counts.sum(axis=0).tolist() == [5] * 8
    assert kept_of(counts, 1.0, 2).sum() == 40
    assert kept_of(counts, 1e19, 2).sum() == 40


@pytest.mark.parametrize(
    ("settings", "size", "problem"),
    [
        ({"layout": {"data": 2, "expert": 2}}, 3, "data 2 x expert 2 = 4 ranks, expected the 3 ranks of the topology"),
        ({"layout": {"expert": 4}}, 4, "4 ranks for 6 experts, expected a divisor of 6: {data: 4, expert: 1}, or"),
        ({"load": (1.0, 2.0)}, 2, "found 2 numbers, expected 6, one for each expert of the model"),
        ({"load": "zipf(4)"}, 2, "expected at most 1/2: a token goes to 2 different experts"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_would(settings: dict[str, Any], size: int, problem: str) -> None:
    error = cause(run(MOE, star(size), numerics="none", **settings)[0][0])
    assert isinstance(error, UsageError)
    assert problem in str(error)


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"algorithm.layout": {"data": 2, "experts": 1}}, "expert"),
        ({"algorithm.layout": {"data": 3, "expert": 1}}, "the 2 ranks of the topology: {data: 2, expert: 1}"),
        ({"algorithm.load": "uniform"}, "null, since the router decides; or numerics: none"),
        ({"algorithm.load": "zipf(99)", "numerics": "none"}, "zipf(s) with s from 0 to 10"),
        (
            {"algorithm.merge": True, "algorithm.load": "zipf(1)", "numerics": "none"},
            "algorithm.merge (set by overrides): found true with load zipf(1), expected false, or a uniform load",
        ),
        ({"workload": "mnist_mlp"}, "workload (set by overrides): found layers Linear, Sequential, expected a layer"),
    ],
)
def test_a_wrong_experiment_is_refused(keys: dict[str, Any], problem: str, tmp_path: Path) -> None:
    plain = {"topology": {"generator": "star", "workers": 2}, "algorithm": "expert_parallel", "workload": "mnist_moe"}
    with pytest.raises(UsageError) as error:
        simcluster.run({**plain, "stop": {"steps": 1}}, overrides=keys, out=tmp_path / "run", report=False)
    assert problem in str(error.value)
    assert not (tmp_path / "run").exists()
