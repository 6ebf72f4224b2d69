"""Every schedule that combines: max, min and mean give what the plain loop gives, and the same bits in any order."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from simcluster.collectives import SCHEDULES, all_reduce, reduce, reduce_scatter
from simcluster.errors import UsageError
from simcluster.transport import Transport
from tests.core.collectives.test_collectives_sums import EXACT, numbers, on_all, options, pairs

FLOATS = st.floats(allow_nan=False, width=32)
PLAIN = {"max": Tensor.amax, "min": Tensor.amin}


def bits(tensor: Tensor) -> Tensor:
    return tensor.reshape(-1).contiguous().view(torch.uint8)


def of_all(op: str, inputs: list[Tensor], **settings: Any) -> Tensor:
    async def body(node: Transport) -> Tensor:
        return await all_reduce(node, inputs[node.rank], "t", op=op, **settings)  # type: ignore[arg-type]

    first, *others = on_all(len(inputs), body)
    assert all(torch.equal(bits(first), bits(other)) for other in others)
    return first


@settings(max_examples=20, deadline=None)
@given(
    op=st.sampled_from(["max", "min"]),
    rows=st.integers(1, 5).flatmap(
        lambda p: st.lists(st.lists(FLOATS, min_size=4, max_size=4), min_size=p, max_size=p)
    ),
)
def test_max_and_min_have_the_same_bits_by_every_schedule(op: str, rows: list[list[float]]) -> None:
    inputs = [torch.tensor(row, dtype=torch.float32) for row in rows]
    expected = PLAIN[op](torch.stack(inputs), 0) + 0.0  # of 0 and -0, which are equal, always 0
    for schedule in pairs("all_reduce"):
        found = of_all(op, inputs, schedule=schedule, **options("all_reduce", schedule, len(inputs)))
        assert torch.equal(bits(found), bits(expected)), schedule


@settings(max_examples=12, deadline=None)
@given(op=st.sampled_from(["max", "min"]), size=st.sampled_from([1, 2, 3, 7]), dtype=st.sampled_from(EXACT))
def test_any_dtype_that_is_summed_has_a_largest_and_a_smallest_number(op: str, size: int, dtype: torch.dtype) -> None:
    inputs = numbers(size, (3, 5), dtype)
    expected = PLAIN[op](torch.stack(inputs), 0)

    async def body(node: Transport) -> None:
        own = inputs[node.rank].clone()
        for schedule in pairs("reduce"):
            given = options("reduce", schedule, size)
            found = await reduce(node, own, f"reduce/{schedule}", size - 1, schedule=schedule, op=op, **given)  # type: ignore[arg-type]
            assert (found is None) == (node.rank < size - 1)
            assert found is None or torch.equal(found, expected)
        for schedule in pairs("reduce_scatter"):
            part = await reduce_scatter(node, own, f"scatter/{schedule}", schedule=schedule, op=op)  # type: ignore[arg-type]
            assert part.dtype == dtype
            assert torch.equal(part, expected.reshape(-1).tensor_split(size)[node.rank])
        assert torch.equal(own, inputs[node.rank]), "the caller's tensor was changed"

    on_all(size, body)


@pytest.mark.parametrize("schedule", pairs("all_reduce"))
def test_a_mean_is_the_sum_with_the_divisor_to_the_bit(schedule: str) -> None:
    inputs = [torch.rand(101, generator=torch.Generator().manual_seed(rank)) for rank in range(5)]
    given = {"schedule": schedule, **options("all_reduce", schedule, 5)}
    assert torch.equal(of_all("mean", inputs, **given), of_all("sum", inputs, divisor=5, **given))


def test_reduces_and_reduce_scatters_have_means() -> None:
    async def body(node: Transport) -> list[list[float] | None]:
        own = torch.tensor([1.0, 2.0, 6.0, 8.0]) * (1 + node.rank)  # ranks 0 and 1: the mean is 1.5 times rank 0's
        whole = await reduce(node, own, "reduce", op="mean")
        part = await reduce_scatter(node, own, "scatter", op="mean")
        return [None if whole is None else whole.tolist(), part.tolist()]

    assert on_all(2, body) == [[[1.5, 3.0, 9.0, 12.0], [1.5, 3.0]], [None, [9.0, 12.0]]]


def test_nan_is_the_largest_and_the_smallest_of_all() -> None:
    inputs = [torch.tensor([1.0, float("nan")]), torch.tensor([float("nan"), 2.0]), torch.tensor([3.0, 4.0])]
    for schedule in sorted({*SCHEDULES["all_reduce"]} - {"hierarchical", "bandwidth_aware"}):
        assert of_all("max", inputs, schedule=schedule).isnan().all(), schedule


@pytest.mark.parametrize(
    ("dtype", "given", "error"),
    [
        (torch.float32, {"op": "maximum"}, "op: found 'maximum', expected one of max, mean, min, sum"),
        (torch.int64, {"op": "mean"}, "a mean of torch.int64: expected floating-point numbers"),
        (torch.complex64, {"op": "max"}, "a max of torch.complex64: expected real numbers"),
        (torch.float32, {"op": "mean", "divisor": 3}, "divisor 3 with op mean: only a sum is divided"),
    ],
)
def test_operators_that_do_not_fit_are_refused(dtype: torch.dtype, given: dict[str, Any], error: str) -> None:
    async def body(node: Transport) -> None:
        with pytest.raises((UsageError, ValueError), match=error):
            await all_reduce(node, torch.ones(3, dtype=dtype), "t", **given)

    on_all(2, body)
