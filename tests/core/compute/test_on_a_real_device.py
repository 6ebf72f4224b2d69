"""Algorithms, messages and collectives on the device that SIMCLUSTER_DEVICE names, such as `cuda`; else on the CPU.

The stand-in of the other tests shows that every tensor is on the right device. A real device also has streams, pinned
copies, generators and kernels that round differently. `python -m tools.accelerators` runs these tests.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from simcluster.algorithms import ALGORITHMS
from simcluster.collectives import SCHEDULES
from simcluster.collectives.operations import all_reduce
from simcluster.compute import HOST, DeviceTransport, device_of
from simcluster.payload import pack
from simcluster.runs.comparison.compare import TOLERANCE
from simcluster.transport import FREE, Transport
from simcluster.workloads import Replica, Workload
from simcluster.workloads.optimizers import adamw
from tests.core.compute.test_algorithms_on_a_device import SIZE, trained, workload
from tests.core.compute.test_on_device import on_sockets, send_four_in_order
from tests.support.clusters import run, star

NAME = os.environ.get("SIMCLUSTER_DEVICE", "cpu")
pytestmark = pytest.mark.exhaustive
MANY = 300_000


@pytest.fixture
def device() -> torch.device:
    return device_of(NAME)


def distance(one: list[Replica], other: list[Replica]) -> float:
    """The norm of the difference of all weights, relative to the norm of those of *one*."""
    pairs = [
        (a.detach().cpu().double(), b.detach().cpu().double())
        for left, right in zip(one, other, strict=True)
        for a, b in zip(left.parameters, right.parameters, strict=True)
    ]
    difference = sum(float((a - b).square().sum()) for a, b in pairs)
    return float((difference / sum(float(a.square().sum()) for a, _ in pairs)) ** 0.5)


def check(name: str, device: torch.device, work: Workload) -> None:
    host, _ = trained(name, work, HOST)
    away, does = trained(name, work, device)
    again, does_again = trained(name, work, device)
    assert {tensor.device.type for replica in away for tensor in replica.parameters} == {device.type}
    assert [one.weights_sha256() for one in away] == [one.weights_sha256() for one in again]
    assert does == does_again
    assert distance(host, away) <= TOLERANCE


@pytest.mark.parametrize("name", ALGORITHMS)
def test_it_repeats_its_bits_near_those_of_the_cpu(name: str, device: torch.device) -> None:
    check(name, device, workload())


@pytest.mark.parametrize("name", ["all_reduce_dp", "sync_ps", "zero", "pipeline"])
def test_it_does_so_clipped_with_adamw(name: str, device: torch.device) -> None:
    check(name, device, workload(adamw(0.01), clip_norm=0.5))


def test_dropout_repeats_its_draws(device: torch.device) -> None:
    def hashes(share: float) -> list[Any]:
        def dropping() -> nn.Module:
            return nn.Sequential(nn.Linear(5, 64), nn.Dropout(share), nn.Linear(64, 4))

        replicas, _ = trained("all_reduce_dp", replace(workload(), model=dropping), device)
        return [one.weights_sha256() for one in replicas]

    assert hashes(0.5) == hashes(0.5) != hashes(0.0)


@pytest.mark.parametrize("schedule", SCHEDULES["all_reduce"])
def test_a_collective_has_the_sum_of_the_host(schedule: str, device: torch.device) -> None:
    settings: dict[str, Any] = {"hierarchical": {"sites": [[0, 1], [2]]}, "bandwidth_aware": {"weights": [1, 1, 1]}}

    async def body(bare: Transport) -> None:
        node = DeviceTransport(bare, device)
        own = torch.arange(7.0) + node.rank
        total = await all_reduce(node, own.to(device), "t", schedule=schedule, **settings.get(schedule, {}))
        assert total.device.type == device.type
        assert torch.equal(total.cpu(), torch.arange(7.0) * 3 + 3)  # x, x + 1 and x + 2

    run(star(SIZE), body, body, body)


def test_a_message_has_the_content_at_its_send_however_late_the_copy_is(device: torch.device) -> None:
    """The device is busy when the message is sent, and the tensor is overwritten after the send began."""

    async def sender(bare: Transport) -> None:
        node = DeviceTransport(bare, device)
        busy = torch.eye(512, device=device)
        for _ in range(200):
            busy = busy @ busy
        tensor = torch.arange(float(MANY), device=device) + busy[0, 1]  # plus 0, once all products are done
        sending = asyncio.create_task(node.send(1, "t", pack(tensor, of=3)))
        await asyncio.sleep(0)
        tensor.zero_()
        await sending

    async def receiver(bare: Transport) -> None:
        message = await DeviceTransport(bare, device).recv(0, "t")
        assert message.tensors[0].device.type == device.type
        assert torch.equal(message.tensors[0].cpu(), torch.arange(float(MANY)))
        assert message["of"] == 3

    on_sockets(sender, receiver)


def test_messages_arrive_in_the_order_of_their_sends(device: torch.device) -> None:
    send_four_in_order(device)


def test_work_is_done_when_it_ends(device: torch.device) -> None:
    async def body(bare: Transport) -> None:
        found = await DeviceTransport(bare, device).compute(torch.add, torch.ones(2, device=device), 1, cost=FREE)
        assert found.tolist() == [2.0, 2.0]

    run(star(1), body)
