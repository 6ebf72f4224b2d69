"""Tensor parallelism against one process, what it sends, and what cannot be split."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from simcluster_backends.sim.cluster import SimCluster
from torch import Tensor, nn

from simcluster.algorithms.model_parallel.tensor_parallel import tensor_parallel
from simcluster.errors import UsageError
from simcluster.transport import Transport
from simcluster.workloads import Workload, gpt, mnist_mlp, quadratic, sgd, train_alone
from tests.core.algorithms.model_parallel import runs
from tests.core.algorithms.model_parallel.runs import SEED, losses_alone, same, values
from tests.core.workloads.costs.test_sketch import workload_of
from tests.support.clusters import star

run, well = partial(runs.run, "tensor_parallel"), partial(runs.well, "tensor_parallel")
MLP = mnist_mlp(hidden=12, batch_size=4)
SMALL: dict[str, Any] = {"width": 16, "context": 8, "batch_size": 2, "learning_rate": 0.1, "optimizer": "sgd"}
TINY = gpt(heads=4, **SMALL)
GATED = gpt(size="7b", layers=1, heads=4, kv_heads=2, head_width=6, feed_forward=24, vocabulary=256, **SMALL)


def deep() -> nn.Module:
    """A pair, a Linear of which there is no second, and a norm that is whole."""
    return nn.Sequential(
        nn.Linear(8, 6),
        nn.Tanh(),
        nn.Linear(6, 5, bias=False),
        nn.LayerNorm(5),
        nn.Linear(5, 4),
        nn.Softmax(1),
        nn.ReLU(),
    )


DEEP = workload_of(deep, (4, 8), optimizer=sgd(1.0))


@pytest.mark.parametrize(
    ("workload", "size"),
    [(MLP, 1), (MLP, 2), (MLP, 3), (MLP, 4), (DEEP, 2), (TINY, 1), (TINY, 2), (TINY, 4), (GATED, 2)],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_shares_of_every_layer_compute_what_one_process_computes(workload: Workload, size: int) -> None:
    replicas, _ = well(workload, star(size))
    same(replicas[0].parameters, train_alone(workload, size, SEED, 3))


def test_groups_of_ranks_share_the_model_as_all_ranks_do() -> None:
    # Rank 3 of 4 is the second of the second group of 2.
    among_four, among_two = TINY.replica(3, 4, SEED, 1), TINY.replica(1, 2, SEED, 1)
    pairs = zip(among_four.tensor_shard(2).parameters, among_two.tensor_shard().parameters, strict=True)
    assert all(torch.equal(*pair) for pair in pairs)


@pytest.mark.parametrize("workload", [mnist_mlp(hidden=12, batch_size=4, clip_norm=0.01), gpt(**SMALL, clip_norm=0.01)])
def test_a_clipped_norm_is_that_of_all_shares_and_counts_once_what_all_have(workload: Workload) -> None:
    # Far below the gradient's norm, so that every step is scaled by all of it.
    replicas, _ = well(workload, star(2))
    same(replicas[0].parameters, train_alone(workload, 2, SEED, 3))


def test_what_every_rank_has_whole_stays_the_same_to_the_bit() -> None:
    replicas, _ = well(TINY, star(4))
    whole = [place for place, name in enumerate(replicas[0].names) if "norm" in name or "embedding" in name]
    assert len(whole) == 6  # two norms in each of two blocks, one at the end, and the embedding
    born = TINY.replica(0, 4, SEED, 1).parameters
    for place in whole:
        for replica in replicas:
            assert torch.equal(replica.parameters[place], replicas[0].parameters[place])
        assert not torch.equal(replicas[0].parameters[place], born[place])


@pytest.mark.parametrize(("workload", "sums"), [(MLP, 1), (DEEP, 1), (TINY, 8)], ids=["MLP", "deep", "GPT"])
def test_every_pair_takes_one_sum_forward_and_one_backward(workload: Workload, sums: int) -> None:
    # The first layer's inputs are data: no f for the MLPs' only pair. Four halves of GPT blocks have an f and a g each.
    size, steps = 2, 3
    _, records = well(workload, star(size), steps)
    clipped = 1 if workload.clip_norm else 0
    # A ring of two sends 2 messages a sum; at the end rank 1 sends its parts to rank 0.
    assert [record.messages_sent for record in records] == [2 * (sums + clipped) * steps + rank for rank in range(size)]


def test_the_sums_carry_activations() -> None:
    # Rank 0 sends nothing but sums: in a ring of two all elements of one, 2 windows of 8 places of 16 for each rank.
    _, records = well(gpt(heads=4, **SMALL, clip_norm=None), star(2), 3)
    bodies = 3 * 8 * (2 * 2 * 8 * 16) * 4
    headers = records[0].bytes_sent - bodies
    assert 0 < headers < 100 * records[0].messages_sent


def test_the_loss_is_the_batchs_and_rank_0_records_when_it_is_whole() -> None:
    _, records = well(MLP, star(3), 5, gather_interval=2)
    losses = losses_alone(MLP, 3, 5)
    assert values(records[1], "loss") == values(records[2], "loss") == pytest.approx(losses, rel=1e-5)
    assert values(records[0], "loss") == pytest.approx([losses[1], losses[3], losses[4]], rel=1e-5)


def test_rank_0_is_whole_when_it_records() -> None:
    seen: list[tuple[int, list[Tensor]]] = []
    replicas = [MLP.replica(rank, 2, SEED, 3) for rank in range(2)]

    async def body(node: Transport) -> None:
        await tensor_parallel(node, replicas[node.rank], gather_interval=2)

    cluster = SimCluster(star(2), SEED)
    cluster.members[0].recorder.on_metrics = lambda step, _: seen.append((step, replicas[0].snapshot()))
    assert cluster.run([body] * 2) == [None] * 2
    assert [step for step, _ in seen] == [2, 3]
    for step, weights in seen:
        same(weights, train_alone(MLP, 2, SEED, step))


@pytest.mark.parametrize("workload", [MLP, TINY, GATED, gpt(heads=4, **SMALL | {"optimizer": "adamw"})])
@pytest.mark.parametrize("settings", [{}, {"schedule": "naive", "gather_interval": 2}], ids=str)
def test_without_numerics_it_sends_and_takes_the_same(workload: Workload, settings: dict[str, Any]) -> None:
    real, none = (well(workload, star(2), numerics=numerics, **settings)[1] for numerics in ("real", "none"))
    for computed, timed in zip(real, none, strict=True):
        assert computed.sent_to == timed.sent_to
        assert computed.finished_s == pytest.approx(timed.finished_s, rel=1e-12)
        assert computed.compute_s == pytest.approx(timed.compute_s, rel=1e-12)


def test_shares_of_the_work_are_shares_of_the_flops() -> None:
    # Of the MLP's both products nothing is done twice.
    whole = MLP.replica(0, 1, SEED, 1).tensor_shard()
    batch = next(MLP.replica(0, 1, SEED, 1).batches())
    one = whole.costs(batch)[0].shard.total.flops
    third = MLP.replica(0, 3, SEED, 1).tensor_shard().costs(batch)[0].shard.total.flops
    assert one == MLP.replica(0, 1, SEED, 1).gradient_cost(batch).flops == 3 * third


@pytest.mark.parametrize(
    ("workload", "size", "problem"),
    [
        (MLP, 5, "tensor_parallel: found 12 columns of layer 0, expected a multiple of the 5 ranks"),
        (quadratic(), 2, "found layers Linear, expected two Linears with an elementwise function between"),
        (
            GATED,
            4,
            "tensor_parallel: found 2 heads of keys and values, expected a multiple of the 4 ranks",
        ),
    ],
)
def test_what_does_not_divide_is_told(workload: Workload, size: int, problem: str) -> None:
    for numerics in ("real", "none"):
        results, _, _ = run(workload, star(size), numerics=numerics)
        for result in results:
            assert isinstance(result, UsageError)
            assert problem in str(result)


def test_all_that_does_not_divide_is_told_at_once() -> None:
    results, _, _ = run(gpt(heads=2, feed_forward=10, **SMALL), star(4))
    assert str(results[0]).splitlines() == [
        "tensor_parallel: found 2 heads, expected a multiple of the 4 ranks",
        "tensor_parallel: found feed_forward 10, expected a multiple of the 4 ranks",
    ]


def half_frozen() -> nn.Module:
    first, second = nn.Linear(8, 6), nn.Linear(6, 3)
    for parameter in (first.weight, second.bias):
        parameter.requires_grad_(False)
    second.bias.data.fill_(2.0)
    return nn.Sequential(first, nn.GELU(), second)


def test_what_is_frozen_is_split_too_and_stays_what_it_is() -> None:
    workload = workload_of(half_frozen, (4, 8), optimizer=sgd(0.5))
    replicas, _ = well(workload, star(3))
    assert replicas[0].names == ["0.bias", "2.weight"]
    same(replicas[0].parameters, train_alone(workload, 3, SEED, 3))
