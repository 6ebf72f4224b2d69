"""Every algorithm with its replica on a device: no tensor of the host meets one of the device, and the weights and the
messages are those of the CPU, whose kernels the stand-in uses."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from simcluster_backends.sim.cluster import SimCluster
from torch import nn

from simcluster.algorithms import ALGORITHMS
from simcluster.compute import HOST, DeviceTransport
from simcluster.transport import Transport
from simcluster.workloads import Replica, Workload, mnist_moe, sgd
from simcluster.workloads.optimizers import MakeOptimizer, adamw
from tests.support.clusters import star
from tests.support.stand_in import counted

SIZE, STEPS, SEED = 3, 6, 3


def layered() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 4))


def workload(optimizer: MakeOptimizer | None = None, **settings: Any) -> Workload:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(48, 5, generator=generator)
    targets = torch.randint(0, 4, (48,), generator=generator)
    return Workload(
        model=layered,
        loss=nn.functional.cross_entropy,
        train=(inputs, targets),
        test=(inputs, targets),
        optimizer=optimizer or sgd(0.05, 0.9),
        batch_size=6,
        **settings,
    )


def trained(name: str, work: Workload, device: torch.device, **settings: Any) -> tuple[list[Replica], str]:
    """The replicas after a simulated run on *device*, and the hash of all that the nodes did."""
    replicas = [work.replica(rank, SIZE, SEED, STEPS, device=device) for rank in range(SIZE)]

    async def body(node: Transport) -> None:
        seen = node if device == HOST else DeviceTransport(node, device)
        await ALGORITHMS[name](seen, replicas[node.rank], **settings)

    cluster = SimCluster(star(SIZE), SEED)
    for result in cluster.run([body] * SIZE):
        if isinstance(result, BaseException):
            raise result
    return replicas, "".join(node.recorder.finish(None).digest for node in cluster.members)


def check(name: str, device: torch.device, work: Workload, **settings: Any) -> None:
    host, does = trained(name, work, HOST, **settings)
    away, does_there = trained(name, work, device, **settings)
    assert [replica.weights_sha256() for replica in away] == [replica.weights_sha256() for replica in host]
    assert does_there == does
    assert {tensor.device for replica in away for tensor in replica.parameters} == {device}
    assert away[0].evaluate() == host[0].evaluate()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_it_ends_with_the_weights_of_the_cpu(name: str, stand_in: torch.device) -> None:
    with counted() as copies:
        check(name, stand_in, mnist_moe(hidden=8) if name == "expert_parallel" else workload())
    assert copies.up
    assert copies.down


@pytest.mark.slow
@pytest.mark.parametrize("name", ALGORITHMS)
def test_clipped_with_adamw(name: str, stand_in: torch.device) -> None:
    small = mnist_moe(hidden=8, optimizer="adamw", learning_rate=0.01, clip_norm=0.5)
    check(name, stand_in, small if name == "expert_parallel" else workload(adamw(0.01), clip_norm=0.5))
