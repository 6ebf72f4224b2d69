"""Means among ranks of which only small forms travel: right, the same everywhere, one step after another."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import torch
from simcluster_backends.sim.cluster import SimCluster
from torch import Tensor

from simcluster.collectives import ring_all_reduce
from simcluster.compression import KINDS, Mean
from simcluster.compression.mean import Turns
from simcluster.topology import Device
from simcluster.transport import Transport
from tests.support.clusters import now, run, star

SHAPES = ((12, 9), (7,), (3, 4, 5))
EXACT: list[Any] = ["none", {"kind": "top_k", "fraction": 1.0}, {"kind": "random_k", "fraction": 1.0}]


def given(step: int, rank: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    generator = torch.Generator().manual_seed(100 * step + rank)
    return [torch.randn(shape, generator=generator, dtype=dtype) for shape in SHAPES]


def mean_of(step: int, size: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    ranks = [given(step, rank, dtype) for rank in range(size)]
    return [sum(parts[1:], start=parts[0]) / size for parts in zip(*ranks, strict=True)]


def means(compression: Any, topology: Any, steps: int, *, at_once: bool = False, meta: bool = False) -> list[Any]:
    """Per rank: the means of *steps* steps, and when it had them."""

    async def body(node: Transport) -> tuple[list[list[Tensor]], float]:
        mean = Mean(compression, node, "g", given(0, 0), ring_all_reduce)
        inputs = [[t.to("meta") if meta else t for t in given(step, node.rank)] for step in range(steps)]
        if not at_once:
            return [await mean(tensors, f"t{step}") for step, tensors in enumerate(inputs)], now()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(mean(tensors, f"t{step}")) for step, tensors in enumerate(inputs)]
        return [task.result() for task in tasks], now()

    return run(topology, *[body] * len(topology.workers))


@pytest.mark.parametrize("compression", EXACT, ids=str)
@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_what_loses_nothing_gives_the_mean(compression: Any, size: int) -> None:
    for found, _ in means(compression, star(size), 2):
        for step in range(2):
            torch.testing.assert_close(found[step], mean_of(step, size), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("size", [2, 3, 7])
def test_int8_is_off_by_a_step_at_most(size: int) -> None:
    # Half a step each way, of a range of about 2 * 3 deviations: 6 / 255.
    for found, _ in means("int8", star(size), 1):
        for mine, expected in zip(found[0], mean_of(0, size), strict=True):
            assert float((mine - expected).abs().max()) <= 8 / 255


@pytest.mark.parametrize("kind", KINDS)
def test_all_ranks_have_the_same_bits(kind: str) -> None:
    first, *others = means(kind, star(3), 3)
    for other in others:
        for step in range(3):
            assert all(map(torch.equal, first[0][step], other[0][step]))


@pytest.mark.parametrize("kind", KINDS)
def test_one_rank_alone_sends_nothing_and_loses_nothing(kind: str) -> None:
    ((found, _),) = means(kind, star(1), 1)
    assert all(map(torch.equal, found[0], given(0, 0)))


@pytest.mark.parametrize("kind", KINDS)
def test_steps_under_way_at_once_are_those_one_after_another(kind: str) -> None:
    # n2's device is slow and n0's fast, so pieces of different steps come together in other orders.
    uneven = star(3, n0=Device("fast", 1e12), n2=Device("slow", 1e7))
    apart, together = means(kind, star(3), 4), means(kind, uneven, 4, at_once=True)
    for one, other in zip(apart, together, strict=True):
        for step in range(4):
            assert all(map(torch.equal, one[0][step], other[0][step])), step


@pytest.mark.parametrize("kind", KINDS)
def test_without_values_it_takes_the_same_time(kind: str) -> None:
    for at_once in (False, True):
        real, none = (means(kind, star(3), 3, at_once=at_once, meta=meta) for meta in (False, True))
        assert [time for _, time in real] == [time for _, time in none]


# bytes


def bytes_sent(compression: Any, like: Tensor, size: int) -> int:
    """What all ranks send, headers included, for one mean of a tensor like this."""

    async def body(node: Transport) -> None:
        await Mean(compression, node, "g", [like], ring_all_reduce)([torch.ones_like(like)], "t")

    cluster = SimCluster(star(size))
    assert cluster.run([body] * size) == [None] * size
    return sum(node.recorder.record.bytes_sent for node in cluster.members)


@pytest.mark.parametrize(
    ("compression", "per_mean"),
    [
        # chunks of 4000: to each of p-1 others, and back
        ("fp16", lambda p: 2 * p * (p - 1) * 4000 * 2),
        ("int8", lambda p: 2 * p * (p - 1) * (4000 + 2 * 8)),
        ("sign", lambda p: 2 * p * (p - 1) * (4000 // 8 + 4)),
        ("terngrad", lambda p: 2 * p * (p - 1) * (4000 // 4 + 4)),
        ("qsgd", lambda p: 2 * p * (p - 1) * (4000 // 2 + 8 * 4)),
        # everything to everybody
        ("top_k", lambda p: p * (p - 1) * 40 * p * 8),
        ("random_k", lambda p: p * (p - 1) * (40 * p * 4 + 8)),
    ],
)
@pytest.mark.parametrize("size", [2, 3])
def test_bytes_are_those_of_the_formula(compression: str, per_mean: Any, size: int) -> None:
    sent = bytes_sent(compression, torch.zeros(4000 * size), size)
    messages = size * (size - 1) * (1 if compression in ("top_k", "random_k") else 2)
    # A header is a preamble of 40 bytes and less than 60 of names and shapes.
    assert messages * 40 < sent - per_mean(size) < messages * 100


def test_power_sgd_all_reduces_its_factors() -> None:
    # A matrix of 40 x 30 by factors of 40 x 2 and 30 x 2, a ring each: 2 (p-1) times them.
    sent = bytes_sent("power_sgd", torch.zeros(40, 30), 3)
    messages = 2 * 3 * 4
    assert messages * 40 < sent - 2 * 2 * (80 + 60) * 4 < messages * 100


# the order of the stream


def test_power_sgd_of_one_matrix_on_all_ranks_is_that_of_their_mean() -> None:
    # Linear in the matrix: factors averaged are the factors of the average.
    found = means({"kind": "power_sgd", "error_feedback": False}, star(3), 1)[0][0][0][0]
    matrix = mean_of(0, 3)[0]
    left, _ = torch.linalg.qr(found)
    assert int(torch.linalg.matrix_rank(found, rtol=1e-4)) == 2
    torch.testing.assert_close(found, left[:, :2] @ (left[:, :2].T @ matrix), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", ["top_k", "random_k", "sign", "power_sgd"])
def test_with_feedback_what_is_not_sent_now_is_sent_later(kind: str) -> None:
    # The same gradients again and again: the mean of what was applied goes to the mean of what was given, 1/steps.
    settings = {"kind": kind, "error_feedback": True} | ({"fraction": 0.2} if kind in ("top_k", "random_k") else {})

    async def body(node: Transport) -> list[Tensor]:
        mean = Mean(settings, node, "g", given(0, 0), ring_all_reduce)
        total = [torch.zeros(shape) for shape in SHAPES]
        for step in range(200):
            for into, more in zip(total, await mean(given(0, node.rank), f"t{step}"), strict=True):
                into.add_(more)
        return [tensor / 200 for tensor in total]

    found = run(star(2), *[body] * 2)[0]
    for mine, expected in zip(found, mean_of(0, 2), strict=True):
        assert float((mine - expected).norm()) < 0.2 * float(expected.norm())


def test_turns_are_taken_in_the_order_of_their_numbers() -> None:
    async def body(node: Transport) -> list[int]:
        turns, seen = Turns(), []

        async def go(number: int) -> None:
            turn = turns.take()
            await asyncio.sleep(0.003 - 0.001 * number)  # the last is at the gate first
            async with turn:
                await asyncio.sleep(0.001)
                seen.append(number)

        async with asyncio.TaskGroup() as group:
            for number in range(3):
                group.create_task(go(number))
        return seen

    assert run(star(1), body) == [[0, 1, 2]]


@pytest.mark.parametrize("kind", KINDS)
def test_fewer_numbers_than_ranks_leave_some_without_a_chunk(kind: str) -> None:
    async def body(node: Transport) -> list[Tensor]:
        like = [torch.zeros(2), torch.zeros(0), torch.zeros(())]
        return await Mean(kind, node, "g", like, ring_all_reduce)([torch.full_like(t, 3.0) for t in like], "t")

    for found in run(star(5), *[body] * 5):
        assert [tensor.shape for tensor in found] == [(2,), (0,), ()]
        if kind not in (
            "top_k",
            "random_k",
            "qsgd",
            "sparse_loco",
        ):  # equal numbers: nothing is lost, but where some are left out
            assert found[0].tolist() == pytest.approx([3.0, 3.0], rel=1e-2)
