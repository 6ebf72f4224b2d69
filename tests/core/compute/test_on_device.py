"""The node of an algorithm whose replica is on a device."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from simcluster.algorithms import ALGORITHMS
from simcluster.collectives import SCHEDULES, ring_all_reduce, subgroup
from simcluster.collectives.operations import all_reduce
from simcluster.compute import HOST, DeviceTransport
from simcluster.payload import lend, pack
from simcluster.testing import CHECKS, Body, RunBodies
from simcluster.transport import FREE, Transport
from tests.core.compute.test_algorithms_on_a_device import SEED, SIZE, STEPS, workload
from tests.support.clusters import run, star
from tests.support.socket_cluster import run_bodies
from tests.support.stand_in import Mixed, counted


def wrapped(bodies: Sequence[Body]) -> list[Any]:
    def on_device(body: Body) -> Body:
        return lambda node: body(DeviceTransport(node, HOST))

    return run_bodies([on_device(body) for body in bodies])


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_it_keeps_the_promises_of_a_transport(check: Callable[[RunBodies], None]) -> None:
    check(wrapped)


def on_sockets(*bodies: Body) -> list[Any]:
    results = run_bodies(bodies)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


def test_a_message_arrives_on_the_device_as_it_was_when_sent(overlapping: torch.device) -> None:
    async def sender(bare: Transport) -> None:
        node, tensor = DeviceTransport(bare, overlapping), torch.arange(1000.0).to(overlapping)
        sending = asyncio.create_task(node.send(1, "t", pack(tensor, torch.ones(2), of=3)))
        await asyncio.sleep(0)
        tensor.zero_()
        await sending

    async def receiver(bare: Transport) -> None:
        message = await DeviceTransport(bare, overlapping).recv(0, "t")
        assert [tensor.device for tensor in message.tensors] == [overlapping] * 2
        assert torch.equal(message.tensors[0].cpu(), torch.arange(1000.0))
        assert torch.equal(message.tensors[1].cpu(), torch.ones(2))
        assert message["of"] == 3

    on_sockets(sender, receiver)


def send_four_in_order(device: torch.device) -> None:
    """The first waits for its copy and the second has none to wait for."""

    async def sender(bare: Transport) -> None:
        node = DeviceTransport(bare, device)
        async with asyncio.TaskGroup() as group:
            group.create_task(node.send(1, "t", pack(torch.zeros(300_000, device=device), number=0)))
            group.create_task(node.send(1, "t", pack(number=1)))
            group.create_task(node.send(1, "t", lend(torch.zeros(3, device=device), number=2)))
            group.create_task(node.send(1, "t", pack(number=3)))

    async def receiver(bare: Transport) -> list[int]:
        return [(await DeviceTransport(bare, device).recv(0, "t"))["number"] for _ in range(4)]

    assert on_sockets(sender, receiver)[1] == [0, 1, 2, 3]


def test_messages_arrive_in_the_order_of_their_sends(overlapping: torch.device) -> None:
    send_four_in_order(overlapping)


def test_a_piece_of_work_ends_when_the_device_has_done_it(stand_in: torch.device) -> None:
    async def body(bare: Transport) -> None:
        with counted() as copies:
            found = await DeviceTransport(bare, stand_in).compute(
                torch.add, torch.ones(2, device=stand_in), 1, cost=FREE
            )
            assert (found.tolist(), copies.synchronised) == ([2.0, 2.0], 1)

    run(star(1), body)


def test_a_device_runs_no_coroutine(stand_in: torch.device) -> None:
    async def body(bare: Transport) -> None:
        with pytest.raises(TypeError, match="is async: await it instead"):
            await DeviceTransport(bare, stand_in).compute(body, bare, cost=FREE)

    run(star(1), body)


@pytest.mark.parametrize("schedule", SCHEDULES["all_reduce"])
def test_a_collective_copies_a_tensor_once_each_way(schedule: str, stand_in: torch.device) -> None:
    settings: dict[str, Any] = {"hierarchical": {"sites": [[0, 1], [2]]}, "bandwidth_aware": {"weights": [1, 1, 1]}}

    async def body(bare: Transport) -> None:
        node = DeviceTransport(bare, stand_in)
        own = torch.arange(7.0) + node.rank
        total = await all_reduce(node, own.to(stand_in), "t", schedule=schedule, **settings.get(schedule, {}))
        assert total.device == stand_in
        assert torch.equal(total.cpu(), torch.arange(7.0) * 3 + 3)
        on_host = await all_reduce(node, own, "h", schedule=schedule, **settings.get(schedule, {}))
        assert torch.equal(on_host, total.cpu())

    with counted() as copies:
        run(star(3), body, body, body)
    assert (copies.up, copies.down) == (6, 9)  # up: the vector and the sum; down: the vector, and twice to look at it


def test_a_collective_of_some_ranks_is_on_the_host_too(stand_in: torch.device) -> None:
    async def body(bare: Transport) -> None:
        node = DeviceTransport(bare, stand_in)
        if node.rank != 1:
            two = subgroup(node, [2, 0])
            total = await ring_all_reduce(two, torch.ones(4, device=stand_in), "t")
            assert total.tolist() == [2.0] * 4
            counts = await ring_all_reduce(two, torch.ones(4), "h")
            assert counts.device == HOST

    run(star(3), body, body, body)


@pytest.mark.parametrize("name", ["d_psgd", "sgp", "sync_ps", "gradient_tracking"])
def test_without_it_tensors_of_both_meet_and_that_is_heard(name: str, stand_in: torch.device) -> None:
    replicas = [workload().replica(rank, SIZE, SEED, STEPS, device=stand_in) for rank in range(SIZE)]

    async def body(node: Transport) -> None:
        await ALGORITHMS[name](node, replicas[node.rank])

    with pytest.raises(BaseException) as error:
        run(star(SIZE), *[body] * SIZE)
    found: BaseException = error.value
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    assert isinstance(found, Mixed)
