"""The live view of a run in a terminal: what it says, that it fits, and that nobody's text can change the terminal."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from simcluster.watching.board import LinkTelemetry, NodeTelemetry, RunInfo, Telemetry, TelemetryBoard
from simcluster.watching.screen import draw, spark
from simcluster.watching.status import run_status


def a_run(size: int = 4, name: str = "quick", slow: int = 2, waits: str = "recv(1)") -> TelemetryBoard:
    board = TelemetryBoard(
        RunInfo(name=name, nodes=[f"n{i}" for i in range(size)], algorithm="edp", topology="t", steps=50)
    )
    for second in range(8):
        nodes = [
            NodeTelemetry(
                name=f"n{rank}", rank=rank, state="running", step=3 * second, loss=2.0 / (second + 1), staleness=1.0,
                compute_s=3 * second * (0.5 if rank == slow else 0.1), waits=[waits], bytes_sent=10**6 * second,
                **({"eval_loss": 0.5, "eval_accuracy": 0.75, "eval_step": 20} if rank == 0 and second == 7 else {}),
            )
            for rank in range(size)
        ]  # fmt: skip
        link = LinkTelemetry(name="n0-n1", bytes_forward=second * 50 * 10**6, capacity_Bps=125e6)
        board.add(Telemetry(elapsed_s=float(second), nodes=nodes, links=[link]))
    return board


def drawn(board: TelemetryBoard, width: int = 120, height: int = 40) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    console.print(draw(run_status(board), board.history, width=width, height=height))
    text: Any = console.file
    return str(text.getvalue())


def test_it_says_how_far_the_run_is_who_is_slow_by_how_much_and_how_busy_links_are() -> None:
    text = drawn(a_run())
    for words in ("quick", "running", "step 21/50", "3 steps/s", "loss 0.25", "500 ms (5.0x)", "40 %",
                  "held-out loss 0.5, accuracy 0.75 (step 20)"):  # fmt: skip
        assert words in text, words
    assert "! n2 computes 5.0 times as long for a step: 500 ms, the others' median 100 ms" in text
    # 50 MB a second are 400 Mbps of 1 Gbps
    assert "400 Mbps" in text
    assert "9.667 s to go" in text  # 29 steps at 3 a second


@pytest.mark.parametrize(("width", "height"), [(60, 20), (80, 24), (120, 40)])
def test_many_nodes_fit_and_the_one_that_is_warned_of_is_among_those_shown(width: int, height: int) -> None:
    lines = drawn(a_run(300, slow=270), width, height).splitlines()
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    assert any(line.strip().startswith("270 ") for line in lines)
    assert any(" more" in line and "and 2" in line for line in lines)


def test_nothing_that_others_named_changes_the_terminal_or_is_markup() -> None:
    text = drawn(a_run(name="\x1b[2J[red]x[/red]", waits="\x1b]0;owned\x07"), width=200)
    assert "\x1b" not in text
    assert "?[2J[red]x[/red]" in text


def test_a_run_of_which_nothing_is_known_yet_is_drawn() -> None:
    board = TelemetryBoard(RunInfo(name="r", nodes=["a"]))
    assert "gathering" in drawn(board)


def test_bars_go_from_the_least_to_the_most_in_as_many_places_as_there_are() -> None:
    assert spark([]) == ""
    assert spark([1.0, 1.0]) == "▁▁"
    assert spark([3.0, 2.0, 1.0], 10) == "█▅▁"
    assert spark([float(i) for i in range(100)], 4) == "▁▃▆█"
