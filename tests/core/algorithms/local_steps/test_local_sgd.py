"""Local SGD and FedAvg: who takes part, what travels, and what is evaluated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

import simcluster
from tests.core.algorithms.trained import (
    EVEN,
    train,
)


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
