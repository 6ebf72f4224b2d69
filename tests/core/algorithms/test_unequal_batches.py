"""Batches of unlike sizes: N ranks, weighed by samples, compute what one process does on the joined batch."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from simcluster.algorithms import ALGORITHMS
from simcluster.algorithms.facts import facts_of
from simcluster.algorithms.parameter_server.server import mean
from simcluster.workloads import Workload, mnist_mlp, mnist_moe, sgd, train_alone
from tests.core.algorithms.model_parallel.runs import SEED, same, well
from tests.support.clusters import star

SIZES = (8, 3, 1)
PLAIN: dict[str, Any] = {"hidden": 12, "batch_size": 4, "learning_rate": 0.1}
MOMENTUM = PLAIN | {"momentum": 0.9, "clip_norm": 0.5}


@pytest.mark.parametrize(
    ("name", "settings", "workload"),
    [
        ("sync_ps", {}, MOMENTUM),
        ("all_reduce_dp", {}, MOMENTUM),
        ("all_reduce_dp", {"bucket_bytes": 1000, "schedule": "naive"}, MOMENTUM),
        *[("zero", {"stage": stage, "reduce": "direct"}, MOMENTUM) for stage in range(4)],
        ("zero", {"stage": 2}, PLAIN),
        ("pipeline", {"micro_batches": 4}, MOMENTUM),
        # One step of SGD each, from equal weights: the mean of the weights takes the step of the mean gradient.
        ("local_sgd", {"interval": 1}, PLAIN),
        ("local_sgd", {"interval": 1, "control_variates": True}, PLAIN),
        ("diloco", {"interval": 1, "outer_learning_rate": 1.0, "outer_momentum": 0.0}, PLAIN),
        (
            "streaming_diloco",
            {"interval": 1, "fragments": 2, "overlap": 0, "blend": 0.0}
            | {"outer_learning_rate": 1.0, "outer_momentum": 0.0},
            PLAIN,
        ),
        ("sparta", {"fraction": 1.0}, PLAIN),
        ("d_psgd", {"overlay": "complete", "order": "step_then_mix"}, PLAIN),
        ("choco_sgd", {"overlay": "complete"}, PLAIN),
        ("sgp", {"overlay": "complete"}, PLAIN),
        # Without momentum of its own, and with all components shared, DeMo averages gradients.
        ("demo", {"momentum": 0.0, "top_k": 64, "update": "mean"}, PLAIN),
        # Servers that wait for all ranks.
        ("k_sync", {}, MOMENTUM),
        ("k_async", {}, MOMENTUM),
        ("ssp", {"staleness": 0}, MOMENTUM),
    ],
    ids=str,
)
def test_unequal_batches_are_one_process_on_the_joined_batch(
    name: str, settings: dict[str, Any], workload: dict[str, Any]
) -> None:
    model = mnist_mlp(**workload).with_batches(SIZES)
    replicas, _ = well(name, model, star(3), 4, **settings)
    same(replicas[0].parameters, train_alone(model, 3, SEED, 4))
    even = mnist_mlp(**workload).with_batches((4, 4, 4))
    assert not torch.allclose(replicas[0].parameters[0], train_alone(even, 3, SEED, 4)[0], rtol=1e-3), "it matters"


@pytest.mark.slow
def test_equal_sizes_by_rank_are_the_bits_of_one_number() -> None:
    for name, known in ALGORITHMS.items():
        if facts_of(known).evenly({}):
            continue
        make = mnist_moe if name == "expert_parallel" else mnist_mlp
        plain, by_rank = (
            well(name, model, star(2), 2)[0][0].weights_sha256()
            for model in (make(**PLAIN), make(**PLAIN).with_batches((4, 4)))
        )
        assert plain == by_rank, name


RATE = 0.5


def linear() -> Workload:
    """A loss linear in the weights: the gradient of a batch is the mean of its inputs, at any weights."""
    inputs = torch.arange(96.0, dtype=torch.float64).reshape(48, 2)
    model = lambda: torch.nn.Linear(2, 1, bias=False, dtype=torch.float64)  # noqa: E731
    mean_output = lambda outputs, _: outputs.mean()  # noqa: E731
    return Workload(model=model, train=(inputs, torch.zeros(48)), test=None, loss=mean_output, optimizer=sgd(RATE),
                    batch_size=1).with_batches(SIZES)  # fmt: skip


def moved(of: Workload, rank: int, steps: int) -> torch.Tensor:
    """Return the sum of *rank*'s samples over *steps* batches."""
    return torch.cat([batch.inputs for batch in of.replica(rank, 3, SEED, steps).batches()]).sum(0)


@pytest.mark.parametrize(
    ("name", "settings", "share"),
    [
        # A step of the server per push, along its gradient.
        ("edp", {}, 1),
        ("edp", {"pull_interval": 2}, 1),
        ("softsync", {"n": 3}, 1),
        ("k_async", {"k": 1}, 1),
        # 12 gradients in steps along the mean of 2.
        ("k_async", {"k": 2, "batch": True}, 1 / 2),
        # 6 changes of 2 steps each, in steps along the mean of 2; each change with 0.7 / 3.
        ("fedbuff", {"interval": 2, "buffer": 2, "damping": "none"}, 1 / 2),
        ("async_diloco", {"interval": 2, "dynamic": False, "outer_learning_rate": 0.7, "outer_momentum": 0.0}, 0.7 / 3),
        # Means of 3 models.
        ("ad_psgd", {"output": "mean"}, 1 / 3),
        ("gradient_tracking", {"output": "mean"}, 1 / 3),
    ],
    ids=str,
)
def test_every_sample_moves_the_weights_of_an_asynchronous_run_alike(
    name: str, settings: dict[str, Any], share: float
) -> None:
    of = linear()
    replicas, _ = well(name, of, star(3), 4, **settings)
    start, end = of.replica(0, 3, SEED, 4).parameters[0], replicas[0].parameters[0]
    # A push of b samples weighs b over the mean batch of 12 / 3, and its gradient is their sum / b.
    samples = torch.stack([moved(of, rank, 4) for rank in range(3)]).sum(0)
    torch.testing.assert_close(end[0], start[0] - RATE * share * samples / 4, rtol=1e-9, atol=1e-9)


def test_elastic_ranks_step_by_the_weight_of_their_batch() -> None:
    of = linear()
    replicas, _ = well("easgd", of, star(3), 1)
    start = of.replica(0, 3, SEED, 1).parameters[0]
    # At the first meeting all weights are the centre, so no spring pulls; rank 0 ends with the centre.
    for rank in (1, 2):
        expected = start[0] - RATE * moved(of, rank, 1) / 4
        torch.testing.assert_close(replicas[rank].parameters[0][0], expected, rtol=1e-9, atol=1e-9)


def test_local_rounds_weigh_by_samples() -> None:
    model = mnist_mlp(**PLAIN).with_batches((6, 2))
    replicas, _ = well("local_sgd", model, star(2), 3, interval=3)
    alone = [model.replica(rank, 2, SEED, 3) for rank in range(2)]
    for replica in alone:
        for batch in replica.batches():
            replica.apply(replica.loss_and_gradients(batch)[1])
    # 6 of 8 samples are of rank 0, 2 of rank 1.
    weighed = [a * 0.75 + b * 0.25 for a, b in zip(alone[0].parameters, alone[1].parameters, strict=True)]
    same(replicas[0].parameters, weighed)


def test_a_server_that_takes_the_first_weighs_only_those() -> None:
    ones = [[torch.tensor([float(value)])] for value in (1, 5, 9)]
    # (1*8 + 5*3) / 11 and the plain mean.
    assert mean([[tensor.clone() for tensor in part] for part in ones[:2]], (8, 3))[0].item() == pytest.approx(23 / 11)
    assert mean([[tensor.clone() for tensor in part] for part in ones], (2, 2, 2))[0].item() == 5


def test_the_loss_of_a_server_is_that_of_the_joined_batch() -> None:
    model = mnist_mlp(**PLAIN).with_batches(SIZES)
    _, records = well("sync_ps", model, star(3), 1)
    alone = model.replica(0, 3, SEED, 1)
    loss, _ = alone.loss_and_gradients(next(alone.joined_batches()))
    assert [m.value for m in records[0].metrics if m.name == "loss"] == pytest.approx([loss], rel=1e-5)


@pytest.mark.parametrize("name", ["sync_ps", "all_reduce_dp", "zero", "local_sgd", "d_psgd"])
def test_without_numerics_it_takes_the_same_time(name: str) -> None:
    model = mnist_mlp(**PLAIN).with_batches(SIZES)
    real, none = (well(name, model, star(3), 2, numerics=numerics)[1] for numerics in ("real", "none"))
    for computed, timed in itertools.zip_longest(real, none):
        assert computed.spans == timed.spans
