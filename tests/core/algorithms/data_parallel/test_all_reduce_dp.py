"""all_reduce_dp against one process in every setting; buckets, accumulation, unused parameters.

Its ring, its broadcast and what it makes of a lost peer are in test_algorithms.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from simcluster.algorithms.data_parallel.buckets import cut_into_buckets
from simcluster.lab.verify.claims.data_parallel import all_reduce_dp as reference
from simcluster.lab.verify.claims.data_parallel import all_reduce_dp_bytes as payload_bytes
from simcluster.topology import Device
from simcluster.workloads import Workload, gpt, mnist_mlp, quadratic, sgd
from tests.core.algorithms.data_parallel.all_reduce_runs import SEED, STEPS, USUAL, WORKLOAD, train, values
from tests.support.clusters import star, with_nodes

# one process


@pytest.mark.parametrize("schedule", ["ring", "naive", "direct"])
@pytest.mark.parametrize("settings", [{}, {"accumulate": 5}, {"initial_weights": "broadcast"}], ids=str)
def test_bytes_are_those_of_the_formula(schedule: str, settings: dict[str, Any]) -> None:
    workload = quadratic(features=2520, samples=64, batch_size=4)  # as many as 3 and 4 divide
    _, records, _ = train(star(3), workload=workload, schedule=schedule, **settings)
    sent = sum(record.bytes_sent for record in records)
    messages = sum(record.messages_sent for record in records)
    expected = payload_bytes(3, 4 * 2520, STEPS, USUAL | {"schedule": schedule} | settings)
    assert messages * 40 < sent - expected < messages * 110, "the rest is headers"


# buckets


def test_buckets_are_filled_from_the_last_layer() -> None:
    # Layers: 784 -> 16 (50,240 bytes), ReLU, 16 -> 10 (680 bytes); parameters 0, 1 and 2, 3.
    replica = mnist_mlp(hidden=16).replica(0, 1, 0, 1)

    def cut(size: int | None) -> list[tuple[list[int], list[int]]]:
        return [(bucket.places, bucket.layers) for bucket in cut_into_buckets(replica, size)]

    assert cut(None) == [([0, 1, 2, 3], [])]
    assert cut(1) == cut(680) == [([2, 3], [2]), ([0, 1], [1, 0])]
    assert cut(681) == [([2, 3, 0, 1], [2, 1, 0])]


def test_a_shared_parameter_is_complete_with_the_first_layer_that_uses_it() -> None:
    # The embedding is also the output: its gradient has two parts, the last of which comes at the very end.
    workload = gpt(batch_size=2, context=8, layers=2, width=8, heads=2)
    replica = workload.replica(0, 1, 0, 1)
    buckets = cut_into_buckets(replica, 1)
    assert len(buckets) > 2
    (embedding,) = (place for place, name in enumerate(replica.names) if name == "embedding.weight")
    assert embedding in buckets[-1].places
    assert sorted(place for bucket in buckets for place in bucket.places) == list(range(len(replica.parameters)))
    together, _, _ = train(star(2), workload=workload, steps=3, schedule="naive")
    in_buckets, _, _ = train(star(2), workload=workload, steps=3, schedule="naive", bucket_bytes=1)
    torch.testing.assert_close(in_buckets[0].parameters, together[0].parameters, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("schedule", "size", "same"), [("naive", 3, True), ("ring", 2, True), ("ring", 3, False)])
def test_buckets_change_no_bit_where_sums_are_taken_in_the_same_order(schedule: str, size: int, same: bool) -> None:
    # A ring sums chunk c in the order c, c+1, ..., and a bucket has other chunks; of two numbers there is one sum.
    workload = mnist_mlp(hidden=16)
    together, in_buckets = (
        train(star(size), workload=workload, steps=4, schedule=schedule, bucket_bytes=size_bytes)[0]
        for size_bytes in (None, 600)
    )
    assert (together[0].weights_sha256() == in_buckets[0].weights_sha256()) == same
    torch.testing.assert_close(in_buckets[0].parameters, together[0].parameters, rtol=1e-3, atol=1e-6)


def test_a_bucket_is_on_its_way_while_the_layers_before_it_are_computed() -> None:
    # 784 -> 400 -> 400 -> 10 would do; here 784 -> 100 -> 10 with a slow link and a slow device: the first bucket's
    # all-reduce is over before the second one's gradient is there.
    workload = mnist_mlp(hidden=100)
    topology = star(2, bandwidth_Bps=1e6, latency_s=0.0)
    times = {}
    for size_bytes in (None, 1):
        topology = with_nodes(topology, device=Device("slow", flops_per_s=2e8))
        _, _, times[size_bytes] = train(topology, workload=workload, steps=3, bucket_bytes=size_bytes)
    # The last layer has 1010 numbers, 4040 bytes: a ring of two moves them in 4.04 ms, of 12 in all three steps.
    assert times[None] - times[1] == pytest.approx(3 * 4.04e-3, rel=0.02)


# accumulation


def test_accumulation_sends_once_for_so_many_batches() -> None:
    _, one, _ = train(star(3))
    _, five, _ = train(star(3), accumulate=5)
    assert one[0].messages_sent == STEPS * 4
    assert five[0].messages_sent == 3 * 4, "5, 5 and 2 batches"
    assert [step for step, _ in values(five[0], "loss")] == [5, 10, 12]


def test_accumulating_over_batches_is_a_larger_batch() -> None:
    # 1 rank, 2 batches of 4 = 2 ranks, 1 batch of 4 each, if they are the same samples: the mean of four-sample means.
    (replica,), _, _ = train(star(1), accumulate=2)
    by_hand = WORKLOAD.replica(0, 1, SEED, STEPS)
    batches = list(by_hand.batches())
    for first, second in zip(batches[::2], batches[1::2], strict=True):
        a, b = (by_hand.loss_and_gradients(batch)[1] for batch in (first, second))
        by_hand.apply([(x + y) / 2 for x, y in zip(a, b, strict=True)])
    torch.testing.assert_close(replica.parameters, by_hand.parameters, rtol=1e-12, atol=1e-12)


# parameters that not every rank uses


class Branch(nn.Module):
    """One of two layers, by what the inputs are."""

    def __init__(self) -> None:
        super().__init__()
        self.positive, self.negative = nn.Linear(2, 3, dtype=torch.float64), nn.Linear(2, 3, dtype=torch.float64)

    def forward(self, inputs: Tensor) -> Tensor:
        return (self.positive if float(inputs.sum()) > 0 else self.negative)(inputs)


def branching() -> Workload:
    inputs = torch.randn(60, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return Workload(
        model=lambda: nn.Sequential(Branch(), nn.Linear(3, 1, dtype=torch.float64)),
        loss=lambda outputs, targets: (outputs - targets).square().mean(),
        train=(inputs, inputs.sum(1, keepdim=True).sin()),
        optimizer=sgd(0.1),
        batch_size=1,
    )


@pytest.mark.parametrize("settings", [{}, {"bucket_bytes": 1}, {"accumulate": 2}], ids=str)
def test_parameters_that_some_ranks_do_not_use_are_averaged_with_zeros(settings: dict[str, Any]) -> None:
    workload, size = branching(), 3
    replicas, _, _ = train(star(size), workload=workload, **settings)
    first = [next(workload.replica(rank, size, SEED, 1).batches()).inputs.sum().item() > 0 for rank in range(size)]
    assert len(set(first)) == 2, "in the first step ranks go different ways"
    expected = reference(workload, size, SEED, STEPS, USUAL | settings)
    for replica in replicas:
        torch.testing.assert_close(replica.parameters, list(expected[0]), rtol=1e-12, atol=1e-12)
    # By hand: the gradient of `positive` is the sum of those who used it, divided by all three.
    alone = workload.replica(0, size, SEED, 1)
    used = [alone.loss_and_gradients(next(workload.replica(r, size, SEED, 1).batches()))[1][0] for r in range(size)]
    assert [bool(gradient.abs().sum() > 0) for gradient in used] == first
    one_step, _, _ = train(star(size), workload=workload, steps=1)
    torch.testing.assert_close(
        one_step[0].parameters[0], alone.parameters[0] - 0.1 * sum(used) / 3, rtol=1e-12, atol=1e-12
    )
