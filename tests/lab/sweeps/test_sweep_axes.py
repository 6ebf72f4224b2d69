"""What a sweep's values mean: lists, ranges, equal steps and ratios with units, draws, grids and pairs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcluster.errors import UsageError
from simcluster.lab.sweeps.axes import combinations, read_axes, read_values, split


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("0,1,4,16", [0, 1, 4, 16]),
        ("1", [1]),
        ("ring, naive", ["ring", "naive"]),
        ("null,2", [None, 2]),
        ("[1,2],[3]", [[1, 2], [3]]),
        ("{kind: top_k, fraction: 0.1},none", [{"kind": "top_k", "fraction": 0.1}, "none"]),
        ("range(3)", [0, 1, 2]),
        ("range(1,9,2)", [1, 3, 5, 7]),
        ("lin(0,1,5)", [0, 0.25, 0.5, 0.75, 1]),
        ("lin(1,9,3)", [1, 5, 9]),
        ("log(1,1000,4)", [1, 10, 100, 1000]),
        ("log(1e-4,1e-1,4)", [1e-4, 1e-3, 1e-2, 1e-1]),
        # 10 Mbps to 2.5 Gbps is a ratio of 250; its third part is 6.2996.
        ("log(10Mbps,2.5Gbps,4)", ["10Mbps", "63 Mbps", "396.9 Mbps", "2.5Gbps"]),
        ("lin(1 ms, 2 s, 2)", ["1 ms", "2 s"]),
        ("lin(0 us,1 ms,3)", ["0 us", "500 us", "1 ms"]),
    ],
)
def test_values_are_what_they_read_as(text: str, values: list[object]) -> None:
    assert read_values(text) == values


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("1,1", "twice"),
        ("range(5,5)", "0 values"),
        ("range(0.5)", "integers"),
        ("log(0,1,3)", "above 0"),
        ("log(1,2)", "FIRST, LAST, COUNT"),
        ("log(1,2,1)", "a count from 2"),
        ("log(10Mbps,2 s,3)", "in a unit like Mbps"),
        ("lin(a,b,3)", "a number"),
        ("logg(1,2,3)", "loguniform"),
    ],
)
def test_what_is_wrong_is_told(text: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        read_values(text)


def test_draws_are_of_seed_and_key_within_their_ends_and_different() -> None:
    drawn = read_values("uniform(0.5,1.5,50)", 3, "a.b")
    assert drawn == read_values("uniform(0.5,1.5,50)", 3, "a.b")
    assert drawn != read_values("uniform(0.5,1.5,50)", 4, "a.b")
    assert drawn != read_values("uniform(0.5,1.5,50)", 3, "a.c")
    assert all(0.5 <= value <= 1.5 for value in drawn)
    assert sum(value < 10 for value in read_values("loguniform(1,100,50)", 0, "x")) in range(12, 39)


def test_one_value_is_fixed_several_are_an_axis_and_the_last_axis_changes_fastest() -> None:
    fixed, axes = read_axes(["stop.steps=20", "a.x=1,2", "a.y=3,4"])
    assert fixed == {"stop.steps": 20}
    assert combinations(axes) == [
        {"a.x": 1, "a.y": 3},
        {"a.x": 1, "a.y": 4},
        {"a.x": 2, "a.y": 3},
        {"a.x": 2, "a.y": 4},
    ]
    assert combinations([]) == [{}]


def test_pairs_change_together_beside_a_grid() -> None:
    _, axes = read_axes(["g=1,2"], ["a=1,2", "b=x,y"])
    assert combinations(axes) == [
        {"g": 1, "a": 1, "b": "x"},
        {"g": 1, "a": 2, "b": "y"},
        {"g": 2, "a": 1, "b": "x"},
        {"g": 2, "a": 2, "b": "y"},
    ]


def test_all_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(UsageError) as error:
        read_axes(["nothing", "a=1,1", "b=1,2", "b=3"], ["c=1,2", "d=1"])
    told = str(error.value)
    assert all(part in told for part in ("KEY=VALUES", "1 twice", "b twice", "2 of c, 1 of d"))


def test_too_many_combinations_are_refused_rather_than_made() -> None:
    _, axes = read_axes([f"k{number}=range(100)" for number in range(3)])
    with pytest.raises(UsageError, match="1,000,000 combinations"):
        combinations(axes)


@given(st.lists(st.text("ab,([{}])'\"", max_size=8)))
def test_splitting_loses_no_character(parts: list[str]) -> None:
    text = ",".join(parts)
    assert ",".join(split(text)) == text
