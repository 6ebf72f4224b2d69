"""Every schedule of every operation gives what the plain loop gives: any number of ranks, shape and dtype."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from simcluster.collectives import (
    SCHEDULES,
    all_gather,
    all_reduce,
    all_to_all,
    barrier,
    broadcast,
    gather,
    reduce,
    reduce_scatter,
    scatter,
    subgroup,
)
from simcluster.errors import UsageError
from simcluster.transport import Transport
from tests.support.clusters import now, run, star
from tests.support.socket_cluster import run_bodies

SIZES = (1, 2, 3, 4, 5, 7, 8)
EXACT = (
    torch.float64,
    torch.float32,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.uint8,
    torch.bfloat16,
    torch.float16,
)


def options(op: str, schedule: str, size: int) -> dict[str, Any]:
    """What a schedule must be told: two uneven sites, unequal links."""
    if schedule == "hierarchical":
        middle = size // 3
        return {"sites": [site for site in (list(range(middle)), list(range(middle, size))) if site]}
    if (op, schedule) == ("all_reduce", "bandwidth_aware"):
        return {"weights": [float(rank % 3) + 0.5 * (rank == 0) for rank in range(size)], "pieces": 3}
    return {}


def pairs(op: str) -> list[str]:
    return sorted(SCHEDULES[op])


def on_all(size: int, body: Any) -> list[Any]:
    return run(star(size), *[body] * size)


def numbers(size: int, shape: tuple[int, ...], dtype: torch.dtype) -> list[Tensor]:
    """Small whole numbers: their sums are exact in every dtype, in any order."""
    generator = torch.Generator().manual_seed(size)
    return [torch.randint(0, 8, shape, generator=generator).to(dtype) for _ in range(size)]


def equal(found: Tensor, expected: Tensor) -> bool:
    return found.dtype == expected.dtype and found.shape == expected.shape and torch.equal(found, expected)


@pytest.mark.parametrize("schedule", pairs("all_reduce"))
@settings(max_examples=12, deadline=None)
@given(
    size=st.sampled_from(SIZES),
    shape=st.sampled_from([(), (0,), (1,), (5,), (3, 7), (2, 0, 3), (2, 3, 4)]),
    dtype=st.sampled_from(EXACT),
)
def test_an_all_reduce_is_the_plain_sum(schedule: str, size: int, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    inputs = numbers(size, shape, dtype)
    expected = torch.stack(inputs).sum(0, dtype=dtype)

    async def body(node: Transport) -> Tensor:
        own = inputs[node.rank].clone()
        result = await all_reduce(node, own, "t", schedule=schedule, **options("all_reduce", schedule, size))
        assert torch.equal(own, inputs[node.rank]), "the caller's tensor was changed"
        result.add_(1)  # what a rank does with its result is its own affair
        return result

    assert all(equal(result, expected + 1) for result in on_all(size, body))


@pytest.mark.parametrize("schedule", pairs("all_reduce"))
@pytest.mark.parametrize("size", [3, 4, 6])
def test_an_all_reduce_gives_all_ranks_the_same_bits(schedule: str, size: int) -> None:
    async def body(node: Transport) -> Tensor:
        own = torch.rand(1001, generator=node.rng.torch) * 10.0 ** (node.rank * 3)  # sums in another order differ
        return await all_reduce(node, own, "t", schedule=schedule, **options("all_reduce", schedule, size))

    results = on_all(size, body)
    assert all(torch.equal(result, results[0]) for result in results)


@pytest.mark.parametrize("schedule", pairs("reduce_scatter"))
@pytest.mark.parametrize("size", SIZES)
def test_a_reduce_scatter_leaves_each_rank_its_part_of_the_sum(schedule: str, size: int) -> None:
    for shape in ((13,), (2, 3), ()):
        inputs = numbers(size, shape, torch.float32)
        expected = torch.stack(inputs).sum(0).reshape(-1).tensor_split(size)

        async def body(node: Transport, inputs: list[Tensor] = inputs) -> Tensor:
            own = inputs[node.rank].clone()
            part = await reduce_scatter(node, own, "t", schedule=schedule)
            assert torch.equal(own, inputs[node.rank]), "the caller's tensor was changed"
            return part.add_(1)

        found = on_all(size, body)
        assert all(equal(part, right + 1) for part, right in zip(found, expected, strict=True))


@pytest.mark.parametrize("schedule", pairs("all_gather"))
@pytest.mark.parametrize("size", SIZES)
def test_an_all_gather_has_everybodys_tensor_by_rank_of_whatever_shape(schedule: str, size: int) -> None:
    inputs = [torch.arange(rank * 2).view(rank, 2) for rank in range(size)]

    async def body(node: Transport) -> list[Tensor]:
        return await all_gather(node, inputs[node.rank], "t", schedule=schedule)

    for found in on_all(size, body):
        assert [tensor.tolist() for tensor in found] == [tensor.tolist() for tensor in inputs]


@pytest.mark.parametrize("schedule", pairs("all_to_all"))
@pytest.mark.parametrize("size", SIZES)
def test_an_all_to_all_turns_rows_into_columns(schedule: str, size: int) -> None:
    async def body(node: Transport) -> list[Tensor]:
        return await all_to_all(node, [torch.tensor([node.rank, to]) for to in range(size)], "t", schedule=schedule)

    for rank, found in enumerate(on_all(size, body)):
        assert [tensor.tolist() for tensor in found] == [[source, rank] for source in range(size)]


@pytest.mark.parametrize("schedule", pairs("broadcast"))
@pytest.mark.parametrize("size", SIZES)
def test_a_broadcast_carries_the_roots_tensors_of_all_dtypes(schedule: str, size: int) -> None:
    root = size // 2

    async def body(node: Transport) -> list[Tensor]:
        own = [
            torch.full((3, 2), node.rank, dtype=torch.float16),
            torch.tensor(node.rank),
            torch.ones(0),
            torch.ones(5),
        ]
        return await broadcast(node, own, "t", root, schedule=schedule, **options("broadcast", schedule, size))

    for found in on_all(size, body):
        assert equal(found[0], torch.full((3, 2), root, dtype=torch.float16))
        assert equal(found[1], torch.tensor(root))
        assert (found[2].shape, found[3].tolist()) == ((0,), [1.0] * 5)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("schedule", pairs("reduce"))
def test_a_reduce_leaves_the_sum_on_the_root_alone(schedule: str, size: int) -> None:
    for root in {0, size - 1, size // 2}:

        async def body(node: Transport, root: int = root) -> Tensor | None:
            own = torch.full((2, 2), 2**node.rank)
            return await reduce(node, own, "t", root, schedule=schedule, **options("reduce", schedule, size))

        for rank, found in enumerate(on_all(size, body)):
            assert (found is None) == (rank != root)
            assert found is None or equal(found, torch.full((2, 2), 2**size - 1))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("schedule", pairs("scatter"))
def test_a_scatter_and_a_gather_undo_each_other(schedule: str, size: int) -> None:
    for root in {0, size - 1, size // 2}:
        parts = [torch.arange(rank + 1) for rank in range(size)]

        async def body(node: Transport, root: int = root, parts: list[Tensor] = parts) -> tuple[Tensor, list[Tensor]]:
            mine = await scatter(node, parts if node.rank == root else [], "s", root, schedule=schedule)
            return mine, await gather(node, mine, "g", root, schedule=schedule)

        for rank, (mine, all_parts) in enumerate(on_all(size, body)):
            assert torch.equal(mine, parts[rank])
            assert [part.tolist() for part in all_parts] == [part.tolist() for part in parts if rank == root]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("schedule", pairs("barrier"))
def test_nobody_leaves_a_barrier_before_the_last_has_come(schedule: str, size: int) -> None:
    async def body(node: Transport) -> float:
        await asyncio.sleep(1.0 if node.rank == size - 1 else 0.0)
        await barrier(node, "t", schedule=schedule)
        return now()

    assert min(on_all(size, body)) >= 1.0


# sub-groups and orders


@pytest.mark.parametrize("schedule", ["ring", "halving_doubling", "recursive_doubling", "binomial"])
def test_any_ranks_in_any_order_are_a_cluster_of_their_own(schedule: str) -> None:
    groups = [[4, 0, 2], [1, 5, 3, 6]]

    async def body(node: Transport) -> tuple[int, float, list[int]]:
        group = next(group for group in groups if node.rank in group)
        inside = subgroup(node, group)
        assert group[inside.rank] == node.rank
        assert inside.peers == [place for place in range(len(group)) if place != inside.rank]
        total = await all_reduce(inside, torch.tensor(10.0**node.rank), "t", schedule=schedule)
        parts = await all_gather(inside, torch.tensor(node.rank), "g")
        return inside.size, float(total), [int(part) for part in parts]

    for rank, found in enumerate(on_all(7, body)):
        group = next(group for group in groups if rank in group)
        assert found == (len(group), float(sum(10**member for member in group)), group)


def test_a_wrong_group_root_number_or_name_is_refused_in_words() -> None:
    async def body(node: Transport) -> list[str]:
        said = []
        for wrong in (
            subgroup,
            lambda node, _: subgroup(node, [0, 0, 1]),
            lambda node, _: subgroup(node, [1 - node.rank]),
        ):
            with pytest.raises(ValueError) as refused:
                wrong(node, [0, 1, 2])
            said.append(str(refused.value))
        with pytest.raises(ValueError, match="root 2: expected a rank from 0 to 1"):
            await broadcast(node, [], "t", 2)
        with pytest.raises(ValueError, match="1 tensors for 2 ranks"):
            await all_to_all(node, [torch.ones(1)], "t")
        with pytest.raises(UsageError, match="found 'rings' of all_reduce, expected one of bandwidth_aware, binomial"):
            await all_reduce(node, torch.ones(1), "t", schedule="rings")
        with pytest.raises(ValueError, match="expected each of 0 to 1 at one"):
            await all_reduce(node, torch.ones(1), "t", schedule="hierarchical", sites=[[0], [0, 1]])
        with pytest.raises(ValueError, match="expected 2 numbers of 0 or above, not all 0"):
            await all_reduce(node, torch.ones(1), "t", schedule="bandwidth_aware", weights=[0.0, 0.0])
        with pytest.raises(ValueError, match="name the rank"):
            await subgroup(node, [1, 0]).recv()
        return said

    first, second, third = on_all(2, body)[0]
    assert first == "sub-group [0, 1, 2] of 2 ranks: 2 does not exist, or is listed twice"
    assert second == "sub-group [0, 0, 1] of 2 ranks: 0 does not exist, or is listed twice"
    assert third == "sub-group [1]: rank 0 is not a member"


# on real sockets


@pytest.mark.parametrize("op", ["all_reduce", "reduce_scatter", "all_gather", "broadcast"])
def test_sockets_give_the_bits_of_the_simulator(op: str) -> None:
    def work(schedule: str) -> Any:
        async def body(node: Transport) -> list[Tensor]:
            own = torch.rand(37, generator=torch.Generator().manual_seed(node.rank))
            extra = options(op, schedule, 3)
            if op == "all_reduce":
                return [await all_reduce(node, own, "t", schedule=schedule, **extra)]
            if op == "reduce_scatter":
                return [await reduce_scatter(node, own, "t", schedule=schedule)]
            if op == "all_gather":
                return await all_gather(node, own, "t", schedule=schedule)
            return await broadcast(node, [own], "t", 1, schedule=schedule, **extra)

        return body

    async def all_of_them(node: Transport) -> list[list[Tensor]]:
        return [await work(schedule)(node) for schedule in pairs(op)]

    real = run_bodies([all_of_them] * 3)
    simulated = on_all(3, all_of_them)
    for ours, theirs in zip(simulated, real, strict=True):
        assert not isinstance(theirs, BaseException), theirs
        for mine, other in zip(ours, theirs, strict=True):
            assert all(torch.equal(a, b) for a, b in zip(mine, other, strict=True))
