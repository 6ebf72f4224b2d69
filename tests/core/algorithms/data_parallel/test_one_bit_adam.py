"""1-bit Adam: Adam while it warms up, signs with error feedback after; on both backends, and without values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from simcluster_backends.sim.cluster import SimCluster
from simcluster_backends.sim.faults import SimFaults

import simcluster
from simcluster.algorithms import one_bit_adam
from simcluster.errors import PeerLost
from simcluster.lab.verify.claims.data_parallel import one_bit_adam as reference
from simcluster.runs.record import NodeRecord
from simcluster.transport import Transport
from simcluster.workloads import Replica, Workload, joined_batches, mnist_mlp, quadratic
from tests.core.workloads.costs.test_timing_only import both, experiment, same_time_and_messages
from tests.support.clusters import star
from tests.support.plans import plan

STEPS, SEED = 12, 3
WORKLOAD = quadratic(features=7, batch_size=4, dtype="float64", learning_rate=0.05)
USUAL = {"warmup": 20, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8}


def train(
    size: int, workload: Workload = WORKLOAD, steps: int = STEPS, **settings: Any
) -> tuple[list[Replica], list[NodeRecord]]:
    replicas = [workload.replica(rank, size, SEED, steps) for rank in range(size)]

    async def body(node: Transport) -> None:
        await one_bit_adam(node, replicas[node.rank], **settings)

    cluster = SimCluster(star(size), SEED)
    for result in cluster.run([body] * size):
        if isinstance(result, BaseException):
            raise result
    return replicas, [node.recorder.finish(None) for node in cluster.members]


@pytest.mark.parametrize("size", [1, 3])
def test_while_it_warms_up_it_is_torchs_adam_on_the_joined_batches(size: int) -> None:
    replicas, _ = train(size, warmup=STEPS)
    alone = [WORKLOAD.replica(rank, size, SEED, STEPS) for rank in range(size)]
    weights = [parameter.clone().requires_grad_() for parameter in alone[0].parameters]
    adam = torch.optim.Adam(weights, lr=0.05)
    for batch in joined_batches(alone):
        for weight, gradient in zip(weights, alone[0].loss_and_gradients(batch)[1], strict=True):
            weight.grad = gradient
        adam.step()
        alone[0].load([weight.detach() for weight in weights])
    torch.testing.assert_close(replicas[0].parameters, alone[0].parameters, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize("settings", [{"warmup": 3}, {"warmup": 1, "beta1": 0.5, "beta2": 0.9}], ids=str)
def test_n_ranks_do_what_the_naive_loop_does(settings: dict[str, Any], size: int) -> None:
    replicas, _ = train(size, **settings)
    for replica, expected in zip(replicas, reference(WORKLOAD, size, SEED, STEPS, USUAL | settings), strict=True):
        torch.testing.assert_close(replica.parameters, list(expected), rtol=1e-9, atol=1e-12)


def test_after_the_warm_up_a_number_takes_a_bit() -> None:
    # 784 -> 16 -> 10: 12,730 numbers. A ring of two sends each once each way; so do the signs, and four amounts more.
    workload = mnist_mlp(hidden=16)
    sent = {warmup: train(2, workload, 10, warmup=warmup)[1][0].bytes_sent for warmup in (4, 5)}
    whole, headers = 12_730 * 4, 2 * 100
    signs = 12_730 / 8 + 2 * 4 * 4
    assert whole - signs - headers < sent[5] - sent[4] < whole - signs + headers


def test_digits_are_learnt_as_by_adam() -> None:
    workload = mnist_mlp(hidden=16, learning_rate=0.003)
    dense, _ = train(2, workload, 120, warmup=120)
    signs, _ = train(2, workload, 120, warmup=40)
    assert dense[0].evaluate()["accuracy"] > 0.8
    assert signs[0].evaluate()["accuracy"] > dense[0].evaluate()["accuracy"] - 0.05
    assert signs[0].weights_sha256() == signs[1].weights_sha256()


def test_a_weight_without_a_gradient_in_the_warm_up_stays_as_it_is() -> None:
    # Its variance is zero: the amount that comes with its sign, divided by epsilon, would throw it far away.
    workload = quadratic(features=4, batch_size=4, dtype="float64")
    workload.train_samples.inputs[:, 2] = 0
    replicas, _ = train(2, workload, 20, warmup=5)
    before = workload.replica(0, 2, SEED, 1).parameters[0][0]
    after = replicas[0].parameters[0][0]
    assert after[2] == before[2]
    assert bool((after[[0, 1, 3]] != before[[0, 1, 3]]).all())


def test_a_lost_peer_ends_it() -> None:
    topology = star(3)
    replicas = [WORKLOAD.replica(rank, 3, SEED, 50) for rank in range(3)]

    async def body(node: Transport) -> None:
        await one_bit_adam(node, replicas[node.rank], warmup=5)

    cluster = SimCluster(topology, faults=SimFaults(plan(topology, "kind: crash, node: n2, at: 2 ms")))
    results = cluster.run([body] * 3)
    assert all(isinstance(result, (PeerLost, ExceptionGroup)) for result in results[:2])


@pytest.mark.slow
def test_without_values_the_same_messages_at_the_same_times(tmp_path: Path) -> None:
    real, none = both({"name": "one_bit_adam", "warmup": 3}, tmp_path)
    same_time_and_messages(real, none)


@pytest.mark.slow
def test_simulator_and_sockets_agree_to_the_bit(tmp_path: Path) -> None:
    source = experiment({"name": "one_bit_adam", "warmup": 3}, "real", workload={"name": "mnist_mlp", "hidden": 16})
    runs = [
        simcluster.run(source, backend=backend, out=tmp_path / backend, report=False) for backend in ("sim", "sockets")
    ]
    for key in ("weights_sha256", "bytes_sent", "messages_sent", "loss"):
        assert runs[0].summary[key] == runs[1].summary[key], key
