"""A schedule of the rate: torch's, stepped with its optimizer, in every algorithm, checkpoint and shard."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import nn
from torch.optim.lr_scheduler import ExponentialLR, ReduceLROnPlateau

from simcluster.algorithms import ALGORITHMS
from simcluster.checkpoints.tree import decode, encode
from simcluster.errors import UsageError
from simcluster.runs.record import RunRecord
from simcluster.workloads import Workload, sgd, train_alone
from tests.core.workloads import own_forms
from tests.core.workloads.own_forms import SCHEDULES, scheduled
from tests.core.workloads.replicas import equal, some_data
from tests.support.kept import config, hashes, play, play_on
from tests.support.levels import sample_of

SCHEDULED = {"path": f"{own_forms.__file__}:scheduled"}
SETTINGS: dict[str, dict[str, Any]] = {
    **{key: {"interval": 2} for key in ("async_diloco", "diloco", "fedbuff", "local_sgd")},
    "one_bit_adam": {"warmup": 3},
    "ssp": {"staleness": 0},
    "zero": {"stage": 3},
    "pipeline": {"micro_batches": 2},
}


def workload_with(optimizer: Any, **changes: Any) -> Workload:
    model, loss = lambda: nn.Linear(6, 3), nn.functional.cross_entropy
    return Workload(model=model, loss=loss, train=some_data(), optimizer=optimizer, batch_size=8, **changes)


def test_an_optimizer_may_come_with_its_scheduler_or_get_one() -> None:
    def both(parameters: list[nn.Parameter]) -> Any:
        optimizer = sgd(0.1)(parameters)
        return optimizer, ExponentialLR(optimizer, 0.5)

    pair, apart = workload_with(both), workload_with(sgd(0.1), schedule=lambda optimizer: ExponentialLR(optimizer, 0.5))
    ends = [train_alone(workload, 2, 0, 4) for workload in (pair, apart, workload_with(sgd(0.1)))]
    assert equal(ends[0], ends[1])
    assert not equal(ends[0], ends[2])


def test_steps_take_the_rates_of_torchs_own_loop() -> None:
    replica = scheduled(kind="warm_up", momentum=0.0).replica(0, 1, 0, 6)
    model = replica.snapshot()
    weight = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scheduler = SCHEDULES["warm_up"](optimizer)
    for batch in replica.batches():
        _, gradients = replica.loss_and_gradients(batch)
        rate = optimizer.param_groups[0]["lr"]
        replica.apply(gradients)
        assert replica.learning_rate == rate
        model = [old - rate * gradient for old, gradient in zip(model, gradients, strict=True)]
        optimizer.step()
        scheduler.step()
    for mine, expected in zip(replica.parameters, model, strict=True):
        assert torch.allclose(mine, expected, atol=1e-6)


@pytest.mark.parametrize("kind", SCHEDULES)
def test_a_schedule_continues_from_a_checkpoint_where_it_was(kind: str) -> None:
    whole, first, second = (scheduled(kind=kind).replica(0, 1, 0, 12) for _ in range(3))
    for batch in whole.batches():
        whole.apply(whole.loss_and_gradients(batch)[1])
    for batch in list(first.batches())[:7]:
        first.apply(first.loss_and_gradients(batch)[1])
    tensors: dict[str, torch.Tensor] = {}
    saved = json.dumps(encode(first.checkpoint_state(), "replica", tensors))
    second.load_checkpoint_state(decode(json.loads(saved), tensors))
    for batch in second.batches(7):
        second.apply(second.loss_and_gradients(batch)[1])
    assert equal(whole.parameters, second.parameters)
    assert second.learning_rate == whole.learning_rate


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", sample_of(sorted(ALGORITHMS.keys() - {"expert_parallel"})))  # it: test_recipe.py
def test_every_algorithm_trains_and_resumes_with_a_schedule(algorithm: str, tmp_path: Path) -> None:
    settings = SETTINGS.get(algorithm, {})
    whole = play(config(algorithm, SCHEDULED, **settings), tmp_path, {"checkpoint": {"every": 4}})
    plain = play(config(algorithm, {**SCHEDULED, "kind": "lambda"}, **settings), tmp_path / "other")
    rest = play_on(tmp_path, 4)
    assert hashes(whole)[0] != hashes(plain)[0]
    if algorithm not in ("ad_psgd", "async_diloco", "edp", "easgd", "fedbuff", "k_async", "softsync"):
        assert hashes(rest) == hashes(whole)


@pytest.mark.slow
def test_owners_of_shards_follow_the_schedule_that_whole_replicas_do(tmp_path: Path) -> None:
    ways: list[tuple[str, dict[str, Any]]] = [("all_reduce_dp", {}), ("zero", {"stage": 1}), ("zero", {"stage": 3})]
    ends = [weights(play(config(name, SCHEDULED, **settings), tmp_path)) for name, settings in ways]
    unscheduled = train_alone(replace(scheduled(), schedule=None), 4, 3, 8)
    for others in ends[1:]:
        assert all(torch.allclose(others[name], value, atol=1e-6) for name, value in ends[0].items())
    far = zip(scheduled().replica(0, 4, 3, 1).names, unscheduled, strict=True)
    assert not all(torch.allclose(ends[0][name], value, atol=1e-3) for name, value in far)


def weights(record: RunRecord) -> dict[str, torch.Tensor]:
    kept = record.nodes[0].weights
    assert kept is not None
    return safetensors.torch.load(kept.read(0, kept.size_bytes))


@pytest.mark.parametrize(
    ("make", "schedule", "expected"),
    [
        (lambda p: ExponentialLR(sgd(0.1)(p), 0.5), None, "ExponentialLR alone, expected the optimizer with it"),
        (lambda p: None, None, "returns None, expected a torch optimizer"),
        (lambda p: (sgd(0.1)(p), ExponentialLR(sgd(0.1)(p), 0.5)), None, "a scheduler of another optimizer"),
        (lambda p: (sgd(0.1)(p), sgd(0.1)(p)), None, "found a SGD, expected a torch learning-rate scheduler"),
        (sgd(0.1), lambda optimizer: ReduceLROnPlateau(optimizer), "a scheduler that only counts steps"),
    ],
)
def test_what_is_not_an_optimizer_with_its_schedule_is_refused(make: Any, schedule: Any, expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        workload_with(make, schedule=schedule).replica(0, 1, 0, 1)
