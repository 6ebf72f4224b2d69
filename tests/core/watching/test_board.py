"""What is known of a run: rates over the last seconds, when it will end, and a history that stays small."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcluster.watching.board import (
    HISTORY,
    LinkTelemetry,
    NodeTelemetry,
    RunInfo,
    Telemetry,
    TelemetryBoard,
    plain,
)

RUN = RunInfo(name="r", nodes=["a", "b", "c"], rendezvous="127.0.0.1:1", steps=100)


def moment(
    elapsed_s: float, *steps: int, bytes_: int = 0, states: str = "rrr", losses: tuple[float, ...] = ()
) -> Telemetry:
    words = {"r": "running", "l": "lost", "e": "expected"}
    nodes = [
        NodeTelemetry(
            name="abc"[rank], rank=rank, state=words[states[rank]], step=step, loss=losses[rank] if losses else None
        )
        for rank, step in enumerate(steps)
    ]
    link = LinkTelemetry(name="a-b", bytes_forward=bytes_, bytes_backward=bytes_ // 2, capacity_Bps=1000.0)
    return Telemetry(elapsed_s=elapsed_s, nodes=nodes, links=[link])


def test_rates_and_the_end_are_those_of_the_slowest_worker_over_the_last_seconds() -> None:
    board = TelemetryBoard(RUN)
    assert board.predicted_end_s is None
    # Rank 0 serves: its steps are all workers' together, and say nothing. b makes 4 steps a second, c makes 2.
    for second in range(11):
        board.add(moment(float(second), 6 * second, 4 * second, 2 * second, bytes_=300 * second))
    assert [board.rate_of(node) for node in board.workers()] == [4.0, 2.0]
    assert (board.steps, board.steps_per_s) == (20, 2.0)
    assert board.predicted_end_s == 10.0 + (100 - 20) / 2.0
    assert board.link_rates() == {"a-b": (300.0, 150.0)}


def test_the_evaluation_of_a_run_is_that_of_the_lowest_rank_left_that_has_made_one() -> None:
    def at(elapsed_s: float, **states: str) -> Telemetry:
        nodes = [
            NodeTelemetry(name=name, rank=rank, state=states[name], eval_loss=float(rank), eval_step=10 - rank)
            for rank, name in enumerate("bc", start=1)
        ]
        return Telemetry(elapsed_s=elapsed_s, nodes=[NodeTelemetry(name="a", rank=0, state="running"), *nodes])

    board = TelemetryBoard(RUN)
    assert board.evaluation == {"eval_loss": None, "eval_accuracy": None, "eval_step": None}
    board.add(at(0.0, b="running", c="running"))
    assert board.evaluation == {"eval_loss": 1.0, "eval_accuracy": None, "eval_step": 9}
    board.add(at(1.0, b="lost", c="running"))
    assert board.evaluation == {"eval_loss": 2.0, "eval_accuracy": None, "eval_step": 8}
    board.add(at(2.0, b="lost", c="lost"))
    assert [moment["eval_loss"] for moment in board.history] == [1.0, 2.0, 1.0]


def test_only_the_last_seconds_count() -> None:
    board = TelemetryBoard(RUN)
    for second in range(20):
        board.add(moment(float(second), 0, min(second, 10), min(second, 10)))
    assert board.steps_per_s == 0.0  # nothing in the last five seconds
    assert board.predicted_end_s is None


def test_who_is_lost_holds_nobody_up() -> None:
    board = TelemetryBoard(RUN)
    for second in range(3):
        board.add(moment(float(second), 0, 5 * second, 0, states="rrl"))
    assert (board.steps, board.steps_per_s) == (10, 5.0)
    assert board.history[-1]["alive"] == 2


def test_the_loss_is_the_mean_of_what_is_a_number() -> None:
    board = TelemetryBoard(RUN)
    board.add(moment(1.0, 1, 1, 1, losses=(1.0, 3.0, float("nan"))))
    assert board.loss == 2.0


def test_a_moment_before_the_last_one_is_not_taken() -> None:
    board = TelemetryBoard(RUN)
    board.add(moment(2.0, 0, 5, 5))
    board.add(moment(1.0, 0, 9, 9))
    assert board.steps == 5


@pytest.mark.parametrize("count", [10, HISTORY, 5 * HISTORY + 3])
def test_history_is_bounded_in_order_and_reaches_from_the_first_moment_to_nearly_the_last(count: int) -> None:
    board = TelemetryBoard(RUN)
    for second in range(count):
        board.add(moment(float(second), 0, second, second))
    times = [entry["elapsed_s"] for entry in board.history]
    assert len(times) <= HISTORY
    assert times == sorted(set(times))
    assert times[0] == 0.0
    assert count - times[-1] <= 2 * (count / len(times)) + 1


def test_states_follow_each_other() -> None:
    board = TelemetryBoard(RUN)
    assert (board.state, board.goes_on) == ("gathering", True)
    board.add(moment(0.0))
    assert board.state == "gathering"
    board.add(moment(0.5, 0, 0, 0))
    assert board.state == "running"
    board.end("rank 1 is lost")
    assert (board.state, board.error, board.goes_on) == ("failed", "rank 1 is lost", False)


@settings(max_examples=30)
@given(
    st.recursive(st.floats() | st.text() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))
)
def test_plain_values_can_be_said_in_json(value: object) -> None:
    json.dumps(plain(value), allow_nan=False)
