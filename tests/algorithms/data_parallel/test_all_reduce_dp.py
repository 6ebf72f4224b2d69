"""all_reduce_dp against one process in every setting; buckets, accumulation, staleness, unused parameters, compression.

Its ring, its broadcast and what it makes of a lost peer are in test_algorithms.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import simcluster
from simcluster.algorithms import all_reduce_dp
from simcluster.algorithms.data_parallel.buckets import cut_into_buckets
from simcluster.compression import KINDS
from simcluster.errors import PeerLost
from simcluster.runs.record import NodeRecord
from simcluster.topology import Device, Topology
from simcluster.topology.model.stragglers import TwoPoint
from simcluster.transport import Transport
from simcluster.verify.claims.all_reduce_dp import payload_bytes, reference
from simcluster.workloads import Replica, Workload, gpt, mnist_mlp, quadratic, sgd
from simcluster_backends.sim.cluster import Cluster
from simcluster_backends.sim.faults import Faults
from tests.support.clusters import star, with_nodes
from tests.support.plans import plan
from tests.workloads.costs.test_timing_only import both, experiment, same_time_and_messages

STEPS, SEED = 12, 3
WORKLOAD = quadratic(features=6, batch_size=4, dtype="float64")
USUAL = {"schedule": "ring", "initial_weights": "seed", "accumulate": 1, "staleness": 0}
ALL = {"kind": "top_k", "fraction": 1.0}


def train(
    topology: Topology, workload: Workload = WORKLOAD, steps: int = STEPS, **settings: Any
) -> tuple[list[Replica], list[NodeRecord], float]:
    """(every rank's replica, its record, the virtual time that all took)."""
    size = len(topology.workers)
    replicas = [workload.replica(rank, size, SEED, steps) for rank in range(size)]

    async def body(node: Transport) -> None:
        await all_reduce_dp(node, replicas[node.rank], **settings)

    cluster = Cluster(topology, SEED)
    for result in cluster.run([body] * size):
        if isinstance(result, BaseException):
            raise result
    records = [node.recorder.finish(None) for node in cluster.members]
    return replicas, records, cluster.loop.time()


def values(record: NodeRecord, name: str) -> list[tuple[int, float]]:
    return [(metric.step, metric.value) for metric in record.metrics if metric.name == name]


# one process


@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"staleness": 1},
        {"staleness": 3},
        {"staleness": 50},  # more than there are steps: all gradients at the initial weights
        {"accumulate": 2},
        {"accumulate": 5},  # the last step has 2 batches
        {"bucket_bytes": 1},
        {"compression": ALL},
        {"staleness": 2, "accumulate": 2, "bucket_bytes": 1, "compression": ALL},
        *({"schedule": name} for name in ("naive", "direct", "binomial", "recursive_doubling", "halving_doubling")),
    ],
    ids=str,
)
def test_n_ranks_do_what_the_naive_loop_does(settings: dict[str, Any], size: int) -> None:
    replicas, _, _ = train(star(size), **settings)
    for replica, expected in zip(replicas, reference(WORKLOAD, size, SEED, STEPS, USUAL | settings), strict=True):
        torch.testing.assert_close(replica.parameters, list(expected), rtol=1e-12, atol=1e-12)
        assert replica.weights_sha256() == replicas[0].weights_sha256()


@pytest.mark.parametrize("schedule", ["ring", "naive", "direct"])
@pytest.mark.parametrize("settings", [{}, {"accumulate": 5}, {"initial_weights": "broadcast"}], ids=str)
def test_bytes_are_those_of_the_formula(schedule: str, settings: dict[str, Any]) -> None:
    workload = quadratic(features=2520, samples=64, batch_size=4)  # as many as 3 and 4 divide
    _, records, _ = train(star(3), workload, schedule=schedule, **settings)
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
    together, _, _ = train(star(2), workload, steps=3, schedule="naive")
    in_buckets, _, _ = train(star(2), workload, steps=3, schedule="naive", bucket_bytes=1)
    torch.testing.assert_close(in_buckets[0].parameters, together[0].parameters, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("schedule", "size", "same"), [("naive", 3, True), ("ring", 2, True), ("ring", 3, False)])
def test_buckets_change_no_bit_where_sums_are_taken_in_the_same_order(schedule: str, size: int, same: bool) -> None:
    # A ring sums chunk c in the order c, c+1, ..., and a bucket has other chunks; of two numbers there is one sum.
    workload = mnist_mlp(hidden=16)
    together, in_buckets = (
        train(star(size), workload, steps=4, schedule=schedule, bucket_bytes=size_bytes)[0]
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
        _, _, times[size_bytes] = train(topology, workload, steps=3, bucket_bytes=size_bytes)
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
    replicas, _, _ = train(star(size), workload, **settings)
    first = [next(workload.replica(rank, size, SEED, 1).batches()).inputs.sum().item() > 0 for rank in range(size)]
    assert len(set(first)) == 2, "in the first step ranks go different ways"
    expected = reference(workload, size, SEED, STEPS, USUAL | settings)
    for replica in replicas:
        torch.testing.assert_close(replica.parameters, list(expected[0]), rtol=1e-12, atol=1e-12)
    # By hand: the gradient of `positive` is the sum of those who used it, divided by all three.
    alone = workload.replica(0, size, SEED, 1)
    used = [alone.loss_and_gradients(next(workload.replica(r, size, SEED, 1).batches()))[1][0] for r in range(size)]
    assert [bool(gradient.abs().sum() > 0) for gradient in used] == first
    one_step, _, _ = train(star(size), workload, steps=1)
    torch.testing.assert_close(
        one_step[0].parameters[0], alone.parameters[0] - 0.1 * sum(used) / 3, rtol=1e-12, atol=1e-12
    )


# staleness


def moody(size: int) -> Topology:
    """Every node takes 10 times as long for one piece of work in five."""
    return with_nodes(star(size), device=Device("moody", 1e6, straggler=TwoPoint(10.0, 0.2)))


def test_who_is_fast_changes_no_bit() -> None:
    for staleness in (0, 1, 3):
        runs = [
            train(topology, staleness=staleness)[0]
            for topology in (star(3), moody(3), star(3, n1=Device("slow", 1e4)), star(3, latency_s=1e-2))
        ]
        assert len({replica.weights_sha256() for replicas in runs for replica in replicas}) == 1, staleness


def test_a_transient_straggler_is_ridden_out_by_staleness() -> None:
    # With a barrier a step lasts as long as its slowest rank, 10 with probability 1 - 0.8^4 = 0.59, about 6.3 times the
    # usual; without any barrier 0.2 * 10 + 0.8 = 2.8 times.
    times = [train(moody(4), steps=40, staleness=staleness)[2] for staleness in (0, 1, 4)]
    assert times[1] < 0.85 * times[0]
    assert times[2] < 0.6 * times[0]
    assert times[2] > 2.8 / 6.3 * 0.9 * times[0], "no rank is faster than its own work"


def test_a_lasting_straggler_sets_the_pace_whatever_the_bound() -> None:
    slow = star(3, n2=Device("slow", 1e4))
    times = [train(slow, steps=20, staleness=staleness)[2] for staleness in (0, 4)]
    assert times[1] == pytest.approx(times[0], rel=0.15)


def test_fast_ranks_lead_by_the_bound_and_the_slowest_by_nothing() -> None:
    # n2 takes 10 ms and more for a gradient, the others next to nothing; an all-reduce takes 0.2 ms.
    _, records, _ = train(star(3, n2=Device("slow", 1e4)), staleness=3)
    leads = [[lead for _, lead in values(record, "lead")] for record in records]
    assert leads[0] == leads[1] == [0, 1, 2] + [3] * (STEPS - 3)
    assert max(leads[2]) == 1, "what it has just sent is still under way when it goes on"
    for record, lead in zip(records, leads, strict=True):
        assert values(record, "lead_max") == [(STEPS, max(lead))]
        assert values(record, "lead_mean") == [(STEPS, pytest.approx(sum(lead) / STEPS))]


def test_without_staleness_there_is_no_lead_to_record() -> None:
    _, records, _ = train(star(2))
    assert {metric.name for metric in records[0].metrics} == {"loss"}


@pytest.mark.parametrize(
    ("staleness", "share", "stable"), [(1, 0.97, True), (1, 1.03, False), (3, 0.95, True), (3, 1.05, False)]
)
def test_delayed_steps_are_stable_up_to_the_bound_of_the_delay(staleness: int, share: float, stable: bool) -> None:
    # x_{t+1} = x_t - eta x_{t-K} is stable iff eta < 2 sin(pi / (2 (2 K + 1))).
    workload = Workload(
        model=lambda: nn.Linear(1, 1, bias=False, dtype=torch.float64),
        loss=lambda outputs, targets: (outputs - targets).square().mean() / 2,
        train=(torch.ones(8, 1, dtype=torch.float64), torch.zeros(8, 1, dtype=torch.float64)),
        optimizer=sgd(share * 2 * math.sin(math.pi / (2 * (2 * staleness + 1)))),
        batch_size=2,
    )
    _, records, _ = train(star(2), workload, steps=160, staleness=staleness)
    losses = [loss for _, loss in values(records[0], "loss")]
    assert (sum(losses[-40:]) < sum(losses[40:80])) == stable


# compression


@pytest.mark.parametrize("kind", KINDS)
def test_digits_are_learnt_with_every_compression_and_replicas_agree(kind: str) -> None:
    workload = mnist_mlp(hidden=16)
    compression: dict[str, Any] = {"kind": kind}
    if kind in ("top_k", "random_k"):
        compression |= {"fraction": 0.1, "error_feedback": True}
    replicas, _, _ = train(star(2), workload, steps=60, compression=compression)
    assert replicas[0].evaluate()["accuracy"] > 0.6
    assert replicas[0].weights_sha256() == replicas[1].weights_sha256()


def test_int8_moves_a_quarter_of_the_bytes_and_learns_the_same() -> None:
    workload = mnist_mlp(hidden=64)
    dense, sent, _ = train(star(2), workload, steps=30)
    small, fewer, _ = train(star(2), workload, steps=30, compression="int8")
    assert sent[0].bytes_sent / fewer[0].bytes_sent == pytest.approx(4, rel=0.01)
    assert abs(small[0].evaluate()["accuracy"] - dense[0].evaluate()["accuracy"]) < 0.03


def test_int8_leaves_small_steps_alone() -> None:
    # Gradients travel quantised, weights are never: at a learning rate of 1e-4 a weight quantised anew every step would
    # not move at all.
    workload = mnist_mlp(hidden=16, learning_rate=1e-4)
    start = workload.replica(0, 2, SEED, 1).parameters
    moved = []
    for compression in ("none", "int8"):
        replicas, _, _ = train(star(2), workload, steps=10, compression=compression)
        moved.append(torch.cat([(a - b).flatten() for a, b in zip(replicas[0].parameters, start, strict=True)]))
    assert float((moved[1] - moved[0]).norm()) < 0.1 * float(moved[0].norm())


def test_compression_pays_on_a_slow_link_and_costs_on_a_slow_device() -> None:
    workload = mnist_mlp(hidden=64)

    def time(compression: str, bandwidth_Bps: float, flops_per_s: float) -> float:
        topology = with_nodes(star(2, bandwidth_Bps), device=Device("d", flops_per_s))
        return train(topology, workload, steps=2, compression=compression)[2]

    assert time("int8", 1e6, 1e12) < 0.3 * time("none", 1e6, 1e12)
    assert time("int8", 1e12, 1e8) > 1.02 * time("none", 1e12, 1e8)


# faults


@pytest.mark.parametrize(
    "settings",
    [{"staleness": 3}, {"staleness": 2, "compression": "int8"}, {"bucket_bytes": 1, "compression": "top_k"}],
    ids=str,
)
def test_a_lost_peer_ends_it_also_with_reductions_under_way(settings: dict[str, Any]) -> None:
    topology = moody(3)
    replicas = [WORKLOAD.replica(rank, 3, SEED, 200) for rank in range(3)]

    async def body(node: Transport) -> None:
        await all_reduce_dp(node, replicas[node.rank], **settings)

    results = Cluster(topology, SEED, faults=Faults(plan(topology, "kind: crash, node: n2, at: 20 ms"))).run([body] * 3)
    for result in results[:2]:
        assert isinstance(result, (PeerLost, ExceptionGroup)), result


def test_a_short_hang_changes_no_bit() -> None:
    topology = moody(3)
    ends = []
    for faults in ([], ["kind: hang, node: n2, at: 5 ms, for: 20 ms"]):
        replicas = [WORKLOAD.replica(rank, 3, SEED, 60) for rank in range(3)]

        async def body(node: Transport, replicas: list[Replica] = replicas) -> None:
            await all_reduce_dp(node, replicas[node.rank], staleness=2, compression="qsgd")

        cluster = Cluster(topology, SEED, faults=Faults(plan(topology, *faults)))
        assert cluster.run([body] * 3) == [None] * 3
        ends.append((replicas[0].weights_sha256(), cluster.loop.time()))
    assert ends[0][0] == ends[1][0]
    assert ends[0][1] < ends[1][1]


# both backends, and without values

SETTINGS: list[dict[str, Any]] = [
    {"staleness": 2},
    {"bucket_bytes": 1000, "accumulate": 2},
    {"bucket_bytes": 1000, "staleness": 1, "accumulate": 2, "compression": "qsgd"},
    {"compression": {"kind": "top_k", "fraction": 0.05}, "staleness": 1},
    {"compression": "power_sgd"},
    {"schedule": "halving_doubling", "bucket_bytes": 1000},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_without_values_the_same_messages_at_the_same_times(settings: dict[str, Any], tmp_path: Path) -> None:
    real, none = both({"name": "all_reduce_dp", **settings}, tmp_path)
    same_time_and_messages(real, none)


@pytest.mark.parametrize("settings", SETTINGS[2:4], ids=str)
def test_simulator_and_sockets_agree_to_the_bit(settings: dict[str, Any], tmp_path: Path) -> None:
    source = experiment({"name": "all_reduce_dp", **settings}, "real", workload={"name": "mnist_mlp", "hidden": 16})
    runs = [
        simcluster.run(source, backend=backend, out=tmp_path / backend, report=False) for backend in ("sim", "sockets")
    ]
    for key in ("weights_sha256", "bytes_sent", "messages_sent", "steps", "loss"):
        assert runs[0].summary[key] == runs[1].summary[key], key
