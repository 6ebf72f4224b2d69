"""Where a model is cut: the slowest stage or link as fast as can be, against trying everything."""

from __future__ import annotations

import math
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcluster.errors import UsageError
from simcluster.transport import Cost
from simcluster.workloads.layers.layer_costs import LayerCost
from simcluster.workloads.layers.stages import balanced, cut_into_stages

NONE = (math.inf, math.inf)


def slowest(cuts: tuple[int, ...], flops: list[int], sizes: list[int], speeds: list[int], rates: list[int]) -> float:
    stages = [sum(flops[a:b]) / speed for (a, b), speed in zip(pairwise((0, *cuts)), speeds, strict=True)]
    links = [sizes[end - 1] / rate for end, rate in zip(cuts[:-1], rates, strict=False)]
    return max(stages + links)


@given(st.data(), st.integers(1, 4), st.integers(0, 4))
def test_no_other_cuts_are_faster(data: st.DataObject, stages: int, more: int) -> None:
    layers = stages + more
    numbers = st.integers(1, 9)
    flops, sizes = (data.draw(st.lists(st.integers(0, 9), min_size=layers, max_size=layers)) for _ in range(2))
    speeds, rates = (data.draw(st.lists(numbers, min_size=stages, max_size=stages)) for _ in range(2))
    found = balanced(tuple(flops), tuple(sizes), tuple(speeds), tuple(rates))
    every = [(*inner, layers) for inner in combinations(range(1, layers), stages - 1)]
    assert found in every
    assert slowest(found, flops, sizes, speeds, rates) == min(
        slowest(cuts, flops, sizes, speeds, rates) for cuts in every
    )


def test_a_stage_twice_as_fast_has_twice_the_work() -> None:
    assert balanced((1,) * 6, (0,) * 6, (1, 1), NONE) == (3, 6)
    assert balanced((1,) * 6, (0,) * 6, (1, 2), NONE) == (2, 6)
    assert balanced((1,) * 6, (0,) * 6, (2, 1), NONE) == (4, 6)


def test_a_slow_link_has_little_to_carry() -> None:
    # Between layers 2 and 3, where the work is even, are 100 bytes; after the first layer is 1.
    assert balanced((1,) * 6, (1, 9, 100, 9, 9, 0), (1, 1), NONE) == (3, 6)
    assert balanced((1,) * 6, (1, 9, 100, 9, 9, 0), (1, 1), (1.0, 1.0)) == (1, 6)
    # At 2 bytes a second, 9 bytes take 4.5 s and 4 layers 4 s: the first link beyond which 5 s of work lie is best.
    assert balanced((1,) * 6, (1, 9, 100, 9, 9, 0), (1, 1), (2.0, 1.0)) == (2, 6)


def costs(count: int) -> list[LayerCost]:
    return [LayerCost(Cost(1.0), Cost(2.0), 4) for _ in range(count)]


def test_cuts_are_taken_as_given_or_refused() -> None:
    assert cut_into_stages(costs(5), 3, [1, 2]) == [(0, 1), (1, 2), (2, 5)]
    assert cut_into_stages(costs(6), 3) == [(0, 2), (2, 4), (4, 6)]
    assert cut_into_stages(costs(2), 1, []) == [(0, 2)]
    for cuts in ([2], [2, 1], [2, 2], [0, 3], [2, 5]):
        with pytest.raises(UsageError, match=r"cuts: found \[.*\], expected 2 rising numbers from 1 to 4"):
            cut_into_stages(costs(5), 3, cuts)
    with pytest.raises(UsageError, match="found 3 stages, expected at most 2 stages, one for each layer of the model"):
        cut_into_stages(costs(2), 3)
