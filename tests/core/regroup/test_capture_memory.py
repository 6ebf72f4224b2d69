"""Captures: the last steps in memory, put back into a replica of another rank, handed to one that has none."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from simcluster.collectives.subgroup import NamedSubgroup
from simcluster.regroup import capture_memory as handing
from simcluster.regroup.capture_memory import Capture, CaptureMemory, copied, hand_over, put_back, take_over
from simcluster.regroup.messages import CaptureName
from simcluster.rng import NodeRandom
from simcluster.transport import ANY, Transport
from simcluster.workloads import Replica
from simcluster.workloads.models.mnist import mnist_mlp
from tests.support.clusters import run, star

WORKLOAD = mnist_mlp(hidden=4, batch_size=4, optimizer="adamw", learning_rate=0.01)


def trained(rank: int, size: int, memory: CaptureMemory, rng: NodeRandom, steps: int = 3) -> Replica:
    replica = WORKLOAD.replica(rank, size, 0, 10)
    memory.begin(replica, rng, size)
    for step, batch in enumerate(replica.batches(), start=1):
        torch.rand(1, generator=rng.torch)
        replica.apply(replica.loss_and_gradients(batch)[1])
        memory.remember(step, step, 0, {"mean": [replica.parameters[0].clone()], "number": step})
        if step == steps:
            break
    return replica


def test_the_start_and_then_the_last_two_steps_are_held_or_as_many_more_as_ranks_may_be_apart() -> None:
    memory = CaptureMemory()
    replica = WORKLOAD.replica(0, 1, 0, 10)
    memory.begin(replica, NodeRandom(0, "n0"), 1)
    assert [name.step for name in memory.held] == [0]
    for step in range(1, 5):
        memory.remember(step, step, 0, {})
    assert [name.step for name in memory.held] == [3, 4]
    memory.remember(4, 4, 0, {})
    assert [name.step for name in memory.held] == [3, 4], "nothing has come since"
    memory = CaptureMemory()
    memory.begin(replica, NodeRandom(0, "n0"), 1)
    for step in range(1, 6):
        memory.remember(step, step, 2, {})
    assert [name.step for name in memory.held] == [2, 3, 4, 5]


def test_what_is_put_back_goes_on_as_if_nothing_had_happened() -> None:
    memory, rng = CaptureMemory(), NodeRandom(0, "n0")
    replica = trained(1, 3, memory, rng)
    kept = replica.state()
    drawn = rng.torch.get_state()
    capture = memory.find(CaptureName(0, -1, 3))
    assert capture is not None
    for _ in range(2):  # what goes on from a capture does not change it
        other, its = WORKLOAD.replica(0, 2, 0, 10), NodeRandom(0, "n0")
        put_back(capture, other, its, 3)
        assert all(torch.equal(other.state()[name], value) for name, value in kept.items())
        assert torch.equal(its.torch.get_state(), drawn)
        assert (other.done, other.at, other.kept["number"]) == (3, 3, 3)
        other.kept["mean"][0].zero_()
        other.apply([torch.ones_like(parameter) for parameter in other.parameters])


def test_a_copy_goes_into_the_tensors_of_one_that_is_not_needed_any_more() -> None:
    first = copied({"a": torch.ones(3), "b": [torch.zeros(2), (1, None)]})
    place = first["a"].data_ptr()
    again = copied({"a": torch.full((3,), 7.0), "b": [torch.ones(4), (2, "x")]}, first)
    assert again["a"].data_ptr() == place
    assert again["a"].tolist() == [7, 7, 7]
    assert again["b"][0].tolist() == [1, 1, 1, 1], "of another shape: a tensor of its own"
    assert again["b"][1] == [2, "x"]


def test_memory_is_asked_for_no_more_once_there_are_two_captures() -> None:
    memory = CaptureMemory()
    trained(0, 1, memory, NodeRandom(0, "n0"), steps=3)

    def places(value: Any) -> list[int]:
        if isinstance(value, dict):
            return [place for part in value.values() for place in places(part)]
        return [value.data_ptr()] if isinstance(value, torch.Tensor) and value.numel() > 1 else []

    model = [places(capture.state["model"]) for capture in memory.captures if capture.state is not None]
    trained_on = memory.captures[-1]
    replica = WORKLOAD.replica(0, 1, 0, 10)
    put_back(trained_on, replica, NodeRandom(0, "n0"), 3)
    memory.begin(replica, NodeRandom(0, "n0"), 1)
    memory.remember(4, 4, 0, {})
    newest = memory.captures[-1].state
    assert newest is not None
    assert places(newest["model"]) == model[0], "those of the older one"


@pytest.mark.parametrize("piece_bytes", [64, 1024**2])
def test_a_capture_arrives_whole_in_pieces_of_any_size_but_for_the_senders_generators(
    piece_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handing, "PIECE_BYTES", piece_bytes)
    memory = CaptureMemory()
    replica = trained(0, 2, memory, NodeRandom(0, "n0"))

    async def has(node: Transport) -> None:
        await hand_over(node, 1, memory.captures[-1])

    async def has_not(node: Transport) -> Capture:
        return await take_over(node, 0)

    arrived = run(star(2), has, has_not)[1]
    assert (arrived.name, arrived.batches, arrived.size) == (CaptureName(0, -1, 3), 3, 2)
    assert arrived.state["generators"] is None
    other = WORKLOAD.replica(1, 2, 0, 10)
    put_back(arrived, other, NodeRandom(0, "n1"), 3)
    assert all(torch.equal(other.state()[name], value) for name, value in replica.state().items())


def test_a_group_shows_its_members_and_hears_nothing_of_another_one() -> None:
    async def second(node: Transport) -> list[Any]:
        older, newer = NamedSubgroup(node, [1, 3], "1.0"), NamedSubgroup(node, [1, 3], "2.0")
        await older.send(1, "x", 1)
        await newer.send(1, "x", 2)
        return [older.rank, older.size, older.peers]

    async def fourth(node: Transport) -> list[Any]:
        newer, older = NamedSubgroup(node, [3, 1], "2.0"), NamedSubgroup(node, [3, 1], "1.0")
        found = [await newer.recv(0, "x"), await older.recv(ANY, "x")]
        with pytest.raises(ValueError, match="rank 2 is not in the sub-group"):
            await newer.send(2, "x", None)
        with pytest.raises(ValueError, match="name the tag"):
            await newer.recv(0, ANY)
        return [newer.rank, [(message.source, message.tag, message["value"]) for message in found]]

    async def idle(node: Transport) -> None: ...

    found = run(star(4), idle, second, idle, fourth)
    assert found[1] == [0, 2, [1]]
    assert found[3] == [1, [(0, "x", 2), (0, "x", 1)]]
