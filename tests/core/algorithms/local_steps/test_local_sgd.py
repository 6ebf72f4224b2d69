"""Local SGD and FedAvg: against the naive loop, one process, and what is known of it on quadratics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import simcluster
from simcluster.lab.verify.claims.local_steps import local_sgd as reference
from simcluster.workloads import train_alone
from tests.core.algorithms.trained import (
    EVEN,
    SEED,
    UNEVEN,
    WORKLOAD,
    changes_something,
    close,
    lost_somebody,
    quadratics,
    takes_the_same_time_without_values,
    train,
)

DEFAULTS = {"interval": 10, "participation": 1.0, "weighting": "uniform", "compression": "none"}


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
@pytest.mark.parametrize(
    "settings",
    [
        {"interval": 5},
        {"interval": 20},
        {"interval": 3, "participation": 0.5},
        {"interval": 4, "weighting": "samples", "participation": 0.7},
    ],
    ids=str,
)
def test_it_is_the_naive_loop_also_where_the_last_round_is_shorter(settings: dict[str, Any], size: int) -> None:
    run = train("local_sgd", size, **settings)
    close(run.weights, reference(WORKLOAD, size, SEED, 12, {**DEFAULTS, **settings}))
    assert all(torch.equal(vector, run.vectors[0]) for vector in run.vectors), "all end with the same bits"


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_averaging_after_every_plain_step_is_one_process(size: int) -> None:
    close(train("local_sgd", size, interval=1).weights, [train_alone(WORKLOAD, size, SEED, 12)] * size)


CURVATURES = [torch.diag(torch.tensor(values)) for values in ([1.5, 0.5], [0.5, 1.0], [1.0, 1.8])]
MINIMA = [torch.tensor(values) for values in ([1.0, -2.0], [3.0, 0.0], [-2.0, 5.0])]
ETA = 0.5


def mean_trajectory(H: int, curvatures: list[Tensor], rounds: int) -> Tensor:
    return train("local_sgd", 3, workload=quadratics(curvatures, MINIMA, ETA), steps=rounds * H, interval=H).vectors[0]


def test_with_equal_curvatures_the_mean_does_not_depend_on_the_interval() -> None:
    # x_i <- (I - eta A) x_i + eta A x_i*: the mean follows the same line whether it is taken often or not.
    ends = [mean_trajectory(H, [CURVATURES[0]] * 3, 12 // H) for H in (1, 3, 12)]
    for end in ends[1:]:
        torch.testing.assert_close(end, ends[0], rtol=1e-12, atol=1e-12)


@pytest.mark.slow
def test_with_different_curvatures_it_ends_where_the_formula_says_farther_off_the_longer_it_is_alone() -> None:
    # In H steps rank i goes the share K_i = I - (I - eta A_i)^H of its way to x_i*; the mean stands still at
    # (sum K_i)^-1 sum K_i x_i*. With H = 1 the way there shrinks by 1 - 0.5 (1.5 + 0.5 + 1) / 3 = 0.5 a step; with
    # H = 16 by at most 0.75^16 = 0.01 a round, of which there are 6.
    unit = torch.eye(2, dtype=torch.float64)
    pairs = [(A.double(), x.double()) for A, x in zip(CURVATURES, MINIMA, strict=True)]
    optimum = torch.linalg.solve(sum(A for A, _ in pairs), sum(A @ x for A, x in pairs))
    biases = []
    for H in (1, 2, 4, 16):
        K = [unit - torch.linalg.matrix_power(unit - ETA * A, H) for A, _ in pairs]
        fixed = torch.linalg.solve(sum(K), sum(k @ x for k, (_, x) in zip(K, pairs, strict=True)))
        torch.testing.assert_close(mean_trajectory(H, CURVATURES, -(-96 // H)), fixed, rtol=1e-10, atol=1e-10)
        biases.append(float((fixed - optimum).norm()))
    assert biases[0] < 1e-12, "with H = 1 it is gradient descent on the mean loss"
    assert biases == sorted(biases)
    assert biases[1] > 1e-2


def test_the_traffic_is_h_times_less() -> None:
    often, seldom = (train("local_sgd", 3, interval=H) for H in (1, 6))
    # 12 rounds or 2, each a ring of 2 (3-1) messages from each of 3 ranks
    assert often.messages_sent == 12 * 3 * 4
    assert seldom.messages_sent == 2 * 3 * 4


def test_of_a_fraction_of_the_ranks_only_those_chosen_train() -> None:
    run = train("local_sgd", EVEN, interval=3, participation=0.34)
    assert run.values(0, "contributions") == [1.0] * 4, "0.34 of 3 is one rank, in each of 4 rounds"
    losses = [len(run.values(rank, "loss")) for rank in range(3)]
    assert sum(losses) == 4, "one rank's loss a round"
    assert max(losses) < 4, "not always the same one"


def test_a_small_form_travels_and_comes_close_to_the_dense_one() -> None:
    dense, small = (train("local_sgd", 3, interval=3, compression=kind) for kind in ("none", "fp16"))
    # In each of 4 rounds 3 ranks send a third of 6 numbers 4 times: 2 bytes each in place of 8, but for tags.
    saved = sum(dense.sizes("average")) - sum(small.sizes("average"))
    assert 0 <= saved - 4 * 3 * 4 * 2 * (8 - 2) <= 4 * 3 * 4
    assert small.vectors[0].dtype == torch.float64
    assert not torch.equal(small.vectors[0], dense.vectors[0])
    torch.testing.assert_close(small.vectors[0], dense.vectors[0], rtol=2e-3, atol=2e-3)
    everything = train("local_sgd", 3, interval=3, compression={"kind": "top_k", "fraction": 1.0})
    close(everything.weights, dense.weights)


@pytest.mark.parametrize(
    "settings",
    [{"interval": 4}, {"participation": 0.4}, {"weighting": "samples"}, {"schedule": "naive"}, {"compression": "int8"}],
    ids=str,
)
def test_every_setting_changes_something(settings: dict[str, Any]) -> None:
    changes_something("local_sgd", settings, {"interval": 3}, EVEN)


@pytest.mark.parametrize(
    "settings",
    [{}, {"interval": 5, "participation": 0.5}, {"weighting": "samples"}, {"interval": 4, "compression": "top_k"}],
    ids=str,
)
def test_without_values_it_takes_the_same_time(settings: dict[str, Any]) -> None:
    takes_the_same_time_without_values("local_sgd", UNEVEN, **settings)


@pytest.mark.parametrize("compression", ["none", "int8"])
def test_it_ends_with_the_rank_that_is_lost(compression: str) -> None:
    run = train("local_sgd", EVEN, faults=["kind: crash, node: n2, at: 9 ms"], interval=3, compression=compression)
    assert all(lost_somebody(result) for result in run.results[:2])


def test_what_is_evaluated_during_a_run_are_weights_that_all_ranks_have(tmp_path: Path) -> None:
    # 12 steps in rounds of 4, evaluated every step: so it is where a round ends, and once more at the end.
    nodes: dict[str, Any] = {f"n{rank}": {"device": "x86-laptop"} for rank in range(2)}
    source = {
        "name": "rounds",
        "topology": {"nodes": nodes, "links": [{"between": ["n0", "n1"], "type": "ethernet-1g"}]},
        "algorithm": {"name": "local_sgd", "interval": 4},
        "workload": {"name": "quadratic", "features": 6},
        "stop": {"steps": 12},
        "evaluate_every": 1,
    }
    metrics = simcluster.run(source, out=tmp_path / "run", report=False).metrics
    assert sorted(metrics[metrics.name == "eval_loss"].step) == [4, 8, 12, 12]
    assert sorted(metrics[(metrics.name == "loss") & (metrics.node == "n1")].step) == [4, 8, 12]
