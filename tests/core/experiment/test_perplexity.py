"""Perplexity: of language models alone, at every evaluation, as e to the power of the loss in nats per token."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from simcluster.experiment.measurements import perplexity
from tests.support.kept import MNIST, config, play

TINY = {"name": "gpt", "layers": 1, "width": 16, "heads": 2, "context": 8, "batch_size": 2}


def test_each_evaluation_of_a_language_model_records_it_and_no_other_models_does(tmp_path: Path) -> None:
    record = play(config("all_reduce_dp", TINY, steps=4) | {"evaluate_every": 2}, tmp_path)
    found = {name: [metric.value for metric in record.nodes[0].metrics if metric.name == f"eval_{name}"]
             for name in ("loss", "perplexity")}  # fmt: skip
    assert len(found["loss"]) == 3
    assert found["perplexity"] == [math.exp(loss) for loss in found["loss"]]
    assert min(found["perplexity"]) > 100, "nearly all of the 256 bytes are still likely"
    digits = play(config("all_reduce_dp", MNIST, steps=2), tmp_path / "digits")
    assert not any(metric.name == "eval_perplexity" for node in digits.nodes for metric in node.metrics)


@pytest.mark.parametrize(("loss", "expected"), [(0.0, 1.0), (math.log(50257), 50257.0), (691.0, math.inf)])
def test_a_uniform_guess_among_n_tokens_has_the_perplexity_n(loss: float, expected: float) -> None:
    assert perplexity(loss) == pytest.approx(expected, rel=1e-12)


def test_a_loss_that_is_no_number_has_none() -> None:
    assert math.isnan(perplexity(math.nan))
