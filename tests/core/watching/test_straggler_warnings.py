"""Who holds a run up: the numbers of each warning, and when there is none."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcluster.watching.board import LinkTelemetry, NodeTelemetry, RunInfo, Telemetry, TelemetryBoard
from simcluster.watching.status import slowness, warnings


def board(
    rates: dict[str, float], work_s: dict[str, float], states: dict[str, str] | None = None, **link: Any
) -> TelemetryBoard:
    """Ten seconds in which each node makes so many steps a second and computes so long for each of them."""
    found = TelemetryBoard(RunInfo(name="r", nodes=list(rates), steps=1000))
    for second in range(11):
        nodes = [
            NodeTelemetry(
                name=name,
                rank=rank,
                state=(states or {}).get(name, "running"),
                step=int(rate * second),
                compute_s=work_s.get(name, 0.0) * int(rate * second),
                **({"reason": "its process is gone"} if name in (states or {}) else {}),
            )
            for rank, (name, rate) in enumerate(rates.items())
        ]
        links = [LinkTelemetry(name="a-b", bytes_forward=95 * second, **link)] if link else []
        found.add(Telemetry(elapsed_s=float(second), nodes=nodes, links=links))
    return found


def told(found: TelemetryBoard) -> list[tuple[str, str]]:
    return [(warning["kind"], warning["name"]) for warning in warnings(found)]


def test_a_node_in_step_with_all_others_is_a_straggler_by_what_it_computes() -> None:
    found = board(dict.fromkeys("abcd", 2.0), {"a": 0.1, "b": 0.1, "c": 0.32, "d": 0.1})
    (warning,) = warnings(found)
    # 0.32 s is 3.2 times the 0.1 s of the others
    assert warning["name"] == "c"
    assert warning["ratio"] == pytest.approx(3.2)
    assert warning["text"] == "c computes 3.2 times as long for a step: 320 ms, the others' median 100 ms"


def test_a_node_that_nothing_else_is_known_of_is_a_straggler_by_its_steps() -> None:
    (warning,) = warnings(board({"a": 12.0, "b": 4.0, "c": 1.0, "d": 4.0}, {}))
    assert warning["text"] == "c makes 1 steps/s, 4.0 times fewer than the others' median of 4"


def test_a_server_that_counts_all_steps_and_computes_little_blames_nobody() -> None:
    # Rank 0 makes twice the steps of each worker, at a hundredth of their work.
    assert told(board({"server": 8.0, "b": 4.0, "c": 4.0}, {"server": 0.001, "b": 0.1, "c": 0.1})) == []
    assert told(board({"server": 4.0, "b": 4.0}, {"server": 0.001, "b": 0.1})) == []


def test_rank_0_can_be_the_straggler_itself() -> None:
    assert told(board(dict.fromkeys("abc", 2.0), {"a": 0.3, "b": 0.1, "c": 0.1})) == [("straggler", "a")]


def test_just_below_twice_the_median_nobody_is_warned_of() -> None:
    work_s = {"a": 0.1, "b": 0.199, "c": 0.1, "d": 0.1}
    assert told(board(dict.fromkeys("abcd", 2.0), work_s)) == []


def test_who_is_lost_is_told_and_is_no_straggler() -> None:
    found = board({"a": 2.0, "b": 2.0, "c": 2.0, "d": 1.0}, {}, {"d": "lost"})
    assert [warning["text"] for warning in warnings(found)] == ["d is lost: its process is gone"]


def test_a_link_at_nine_tenths_of_its_bandwidth_is_full() -> None:
    # 95 bytes a second of 100, then of 106
    assert told(board({"a": 1.0, "b": 1.0}, {}, capacity_Bps=100.0)) == [("link", "a-b")]
    assert told(board({"a": 1.0, "b": 1.0}, {}, capacity_Bps=106.0)) == []


@given(st.dictionaries(st.sampled_from("abcdef"), st.floats(0.01, 100.0), min_size=2), st.floats(0.1, 10.0))
def test_slowness_has_no_unit_and_the_others_of_equals_are_as_slow(values: dict[str, float], factor: float) -> None:
    names = list(values)
    scaled = slowness({name: factor * value for name, value in values.items()}, names)
    assert scaled == pytest.approx(slowness(values, names))
    assert slowness(dict.fromkeys(names, 3.0), names) == dict.fromkeys(names, 1.0)
