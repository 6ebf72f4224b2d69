"""Tensors that travel from device to device, on the stand-in: the promises of a transport, and turns of a device."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from simcluster_backends.torch.device_transfers import KINDS, Turn, can_carry
from torch import Tensor

from simcluster.algorithms import ALGORITHMS
from simcluster.collectives import SCHEDULES, operations
from simcluster.compute import HOST, DeviceTransport
from simcluster.errors import PeerLost
from simcluster.forwarding import Forwarding
from simcluster.payload import Message, Payload, Sendable, as_payload, pack
from simcluster.testing import CHECKS, Body, Crash, RunBodies
from simcluster.transport import ANY, Any_, Transport
from simcluster.workloads import mnist_moe
from tests.core.compute.test_algorithms_on_a_device import SEED, SIZE, STEPS, workload
from tests.support.stand_in import NAME, counted, install
from tests.support.strict_pair import Misused, StrictPair, card, raw
from tests.support.torch_cluster import run_bodies


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """The stand-in, with tensors that travel by themselves."""
    monkeypatch.setitem(KINDS, NAME, (card, StrictPair))
    return install()


class Lifting(Forwarding):
    """*node*, sending every tensor from the device, and handing it out on the host."""

    async def send(self, to: int, tag: str, content: Sendable) -> None:
        payload = as_payload(content)
        if all(isinstance(tensor, Tensor) and tensor.layout is torch.strided for tensor in payload.tensors):
            payload = Payload(tuple(tensor.to(install(), copy=True) for tensor in payload.tensors), payload.values)
        await super().send(to, tag, payload)

    async def recv(self, source: int | Any_ = ANY, tag: str | Any_ = ANY) -> Message:
        message = await super().recv(source, tag)
        assert all(tensor.device == install() for tensor in message.tensors)
        return replace(
            message, payload=Payload(tuple(tensor.cpu() for tensor in message.tensors), message.payload.values)
        )


def lifted(bodies: Sequence[Body]) -> list[Any]:
    def lift(body: Body) -> Body:
        return lambda node: body(Lifting(node))

    return run_bodies([lift(body) for body in bodies], device=install())


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_promise(check: Callable[[RunBodies], None]) -> None:
    check(lifted)


def test_it_is_carried_by_the_group_of_the_device_which_takes_no_tensor_of_the_host(
    device: torch.device,
) -> None:
    async def sender(node: Transport) -> None:
        await DeviceTransport(node, device).send(1, "both", pack(torch.ones(16, device=device), torch.ones(3), of=3))
        await DeviceTransport(node, device).send(1, "host", torch.ones(5))

    async def receiver(node: Transport) -> None:
        message = await DeviceTransport(node, device).recv(0, "both")
        assert [tensor.device for tensor in message.tensors] == [device] * 2
        assert ([tensor.tolist() for tensor in message.tensors], message["of"]) == ([[1.0] * 16, [1.0] * 3], 3)
        assert (await node.recv(0, "host")).tensor.is_cpu

    with counted() as copies:
        assert run_bodies([sender, receiver], device=device) == [None, None]
    assert (copies.up, copies.down) == (1, 2)  # up: the sender's tensor of the host; down: both, to look at them
    with pytest.raises(Misused, match="a tensor of cpu"):
        raw(torch.ones(1))


@pytest.mark.parametrize(("op", "schedule"), [(op, name) for op, found in SCHEDULES.items() for name in found])
def test_a_collective_runs_on_the_device_with_the_bits_of_the_host(
    op: str, schedule: str, device: torch.device
) -> None:
    settings: dict[str, Any] = {"hierarchical": {"sites": [[0, 1], [2]]}, "bandwidth_aware": {"weights": [3, 2, 1]}}

    async def body(node: Transport, where: torch.device) -> Any:
        own = (torch.arange(24.0) / 7 + node.rank).to(where)
        parts = [piece.clone() for piece in own.split(8)]
        given = {"barrier": [], "all_to_all": [parts], "scatter": [parts], "broadcast": [parts]}.get(op, [own])
        result = await getattr(operations, op)(
            DeviceTransport(node, where), *given, "t", schedule=schedule, **settings.get(schedule, {})
        )
        found = [result] if isinstance(result, Tensor) else result or []
        assert all(tensor.device == where for tensor in found)
        return found

    with counted() as copies:
        there = run_bodies([partial(body, where=device)] * 3, device=device)
    assert (copies.up, copies.down) == (3, 0)  # each rank's own
    here = run_bodies([partial(body, where=HOST)] * 3)
    assert [[tensor.tolist() for tensor in found] for found in there] == [
        [tensor.tolist() for tensor in found] for found in here
    ]


def test_who_is_lost_during_a_transfer_does_not_keep_the_device_of_the_others(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transfer from rank 0 to rank 1 never ends, as in a group whose peer is gone, until it is aborted."""
    begun, send = threading.Event(), StrictPair.send
    aborted: defaultdict[int, threading.Event] = defaultdict(threading.Event)

    def stuck(pair: StrictPair, tensor: Tensor) -> None:
        if tensor.numel() != 1024:
            return send(pair, tensor)
        begun.set()
        aborted[id(pair)].wait()
        return None

    def abort(pair: StrictPair) -> None:
        aborted[id(pair)].set()

    monkeypatch.setattr(StrictPair, "send", stuck)
    monkeypatch.setattr(StrictPair, "abort", abort)

    async def first(node: Transport) -> str:
        with pytest.raises(PeerLost):
            await node.send(1, "t", torch.ones(256, device=device))
        await node.send(2, "t", torch.ones(4, device=device))
        return "went on"

    async def second(node: Transport) -> None:
        await asyncio.to_thread(begun.wait)
        raise Crash

    async def third(node: Transport) -> list[float]:
        found: list[float] = (await node.recv(0, "t")).tensor.tolist()
        return found

    results = run_bodies([first, second, third], device=device)
    assert (results[0], results[2]) == ("went on", [1.0] * 4)


def test_a_device_has_one_transfer_at_a_time_and_a_closed_link_none() -> None:
    turn, mine, others = Turn(), object(), object()
    turn.take(mine, lambda: False)
    turn.give_back(others)  # has no effect: it is not theirs
    closed, outcome = threading.Event(), list[str]()

    def wait() -> None:
        try:
            turn.take(others, closed.is_set)
        except RuntimeError as error:
            outcome.append(str(error))

    waiting = threading.Thread(target=wait)
    waiting.start()
    closed.set()
    turn.give_back(others)
    waiting.join()
    assert outcome == ["the link is closed"]
    turn.give_back(mine)
    turn.take(others, lambda: False)


@pytest.mark.parametrize(
    ("cards", "can"), [(["a", "b"], True), (["a", "a"], False), (["a", ""], False), (["a"], False), ([], False)]
)
def test_each_rank_needs_a_card_that_no_other_rank_uses(cards: list[str], can: bool) -> None:
    assert can_carry(cards) is can


@pytest.mark.slow
@pytest.mark.parametrize("name", ALGORITHMS)
def test_in_no_algorithm_does_a_carried_tensor_meet_one_of_the_host(name: str, device: torch.device) -> None:
    model = mnist_moe(hidden=8) if name == "expert_parallel" else workload()
    replicas = [model.replica(rank, SIZE, SEED, STEPS, device=device) for rank in range(SIZE)]

    async def body(node: Transport) -> None:
        await ALGORITHMS[name](DeviceTransport(node, device), replicas[node.rank])

    assert run_bodies([body] * SIZE, device=device) == [None] * SIZE
    assert {tensor.device for replica in replicas for tensor in replica.parameters} == {device}
