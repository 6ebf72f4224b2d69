"""--track follows a run in progress: points appear meanwhile, each once, and the finished run replaces the draft."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import simcluster
from simcluster.lab.tracking import live
from simcluster.lab.tracking.handover import Handover, Heading, TrackedValue, hand_over
from simcluster.lab.tracking.live import LiveTracking, Points
from simcluster.results import load_run
from simcluster.runs.record import Metric
from simcluster.watching.telling import NodeRows

TINY: dict[str, Any] = {
    "name": "tiny", "topology": {"generator": "star", "workers": 2}, "algorithm": "sync_ps",
    "workload": {"name": "quadratic"}, "stop": {"steps": 6},
}  # fmt: skip


class Drafts:
    """A tracker of this file: its drafts, what is in each, and the runs written."""

    where, look = "a list", "read it"

    def __init__(self) -> None:
        self.drafts: list[Heading] = []
        self.points: list[TrackedValue] = []
        self.kept: list[bool] = []
        self.runs: list[Handover] = []
        self.has_points = threading.Event()

    def write(self, run: Handover) -> bool:
        self.runs.append(run)
        return True

    def draft(self, run: Heading) -> Drafts:
        self.drafts.append(run)
        return self

    def add(self, values: Sequence[TrackedValue]) -> None:
        self.points += values
        self.has_points.set()

    def close(self, *, keep: bool) -> None:
        self.kept.append(keep)


@pytest.fixture
def drafts(monkeypatch: pytest.MonkeyPatch) -> Drafts:
    found = Drafts()
    for module in ("live", "exporting"):
        monkeypatch.setattr(f"simcluster.lab.tracking.{module}.opened", lambda to, into: found)
    monkeypatch.setattr(live, "EVERY_S", 0.0)
    return found


class Patient(LiveTracking):
    """Waits inside the run until the tracker has points: they are there before the run has ended."""

    def __init__(self, drafts: Drafts) -> None:
        super().__init__([("tensorboard", None)])
        self._drafts, self.in_the_run = drafts, False

    def look(self, rows: Callable[[], Sequence[NodeRows]]) -> None:
        super().look(rows)
        if any(node.metrics and node.metrics[-1].step >= 3 for node in rows()) and self._points._returned:
            self.in_the_run = self._drafts.has_points.wait(60)


def rows(name: str, *steps: int, is_lost: bool = False) -> NodeRows:
    return NodeRows(name, [Metric(step / 10, step, name, "loss", float(step)) for step in steps], [], is_lost)


def test_a_step_is_returned_once_all_nodes_have_passed_it_and_once_only() -> None:
    points = Points(offset_s=100.0)
    assert points.take([rows("a", 1, 2), rows("b", 1)]) == []
    found = points.take([rows("a", 1, 2, 3), rows("b", 1, 2)])
    assert [(value.name, value.step) for value in found] == [
        ("loss", 1), ("loss/a", 1), ("loss/b", 1), ("time_s", 1),
    ]  # fmt: skip
    assert found[0] == TrackedValue("loss", 1, 100.1, 1.0)
    assert points.take([rows("a", 1, 2, 3), rows("b", 1, 2)]) == []
    lost = points.take([rows("a", 1, 2, 3), rows("b", 1, 2, is_lost=True)])
    assert {value.step for value in lost} == {2}


def test_rows_that_come_for_a_returned_step_are_left_to_the_finished_run() -> None:
    points = Points()
    assert {value.step for value in points.take([rows("a", 1, 2)])} == {1}
    assert points.take([rows("a", 1, 2, 1, 2)]) == []


def test_a_late_row_with_another_name_does_not_repeat_the_time_of_its_step() -> None:
    points = Points()
    assert ("time_s", 1) in {(value.name, value.step) for value in points.take([rows("a", 1, 2)])}
    late = NodeRows("a", [*rows("a", 1, 2).metrics, Metric(0.3, 1, "a", "applied", 1.0)], [], is_lost=False)
    assert {value.name for value in points.take([late], is_over=True) if value.step == 1} <= {"applied", "applied/a"}


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["sim", "sockets"])
def test_points_appear_while_the_run_goes_on_each_once_and_equal_those_of_the_result(
    backend: str, drafts: Drafts, tmp_path: Path
) -> None:
    following = Patient(drafts)
    steps = 6 if backend == "sim" else 2000
    run = simcluster.run(
        {**TINY, "stop": {"steps": steps}}, backend=backend, out=tmp_path / "run", report=False, follower=following,
        options={} if backend == "sim" else {"heartbeat_s": 0.02},
    )  # fmt: skip
    assert following.in_the_run
    assert following.end(keep=False) == {}
    assert drafts.kept == [False]
    known = {(value.name, value.step): value for value in hand_over(run).values}
    found = [(value.name, value.step) for value in drafts.points]
    assert len(found) == len(set(found)) > 0
    assert {value.name for value in drafts.points} >= {"loss", "time_s"}
    # The simulator's clock is exact; a held-out loss may come later than the rest of its step.
    losses = [value for value in drafts.points if value.name == "loss"]
    assert losses == [known["loss", value.step] for value in losses]
    heading = drafts.drafts[0]
    assert (heading.name, heading.experiment) == (hand_over(run).name, hand_over(run).experiment)


def test_after_a_resume_points_have_the_times_of_the_whole_run(drafts: Drafts, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    simcluster.run({**TINY, "checkpoint": {"every": 2}}, out=folder, report=False)
    following = Patient(drafts)
    run = simcluster.resume(
        folder, overrides={"stop.steps": 12}, out=tmp_path / "again", report=False, follower=following
    )
    following.end(keep=False)
    known = {(value.name, value.step): value for value in hand_over(run).values}
    losses = [value for value in drafts.points if value.name == "loss"]
    assert {value.step for value in losses} <= set(range(7, 13))
    assert losses
    assert losses == [known["loss", value.step] for value in losses]
    assert len(losses) == len({value.step for value in losses})


def test_the_end_in_a_tracker_is_that_of_an_export(command: Any, drafts: Drafts) -> None:
    tiny = ["quickstart", "--set", "workload=quadratic", "--set", "stop.steps=3", "--no-report"]
    code, out, err = command("run", *tiny, "--track", "tensorboard", "--out", "fine")
    assert (code, err) == (0, "")
    assert "1 run written to a list" in out
    assert drafts.kept in ([False], [])  # a draft that is not begun by the end is not begun at all
    assert drafts.runs == [hand_over(load_run("fine"))]


def test_a_tracker_that_fails_costs_one_warning_and_not_the_run(
    command: Any, drafts: Drafts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(run: Handover) -> bool:
        raise OSError("no space left")

    monkeypatch.setattr(drafts, "write", full)
    tiny = ["quickstart", "--set", "workload=quadratic", "--set", "stop.steps=3", "--no-report"]
    code, out, err = command("run", *tiny, "--track", "tensorboard", "--out", "fine")
    assert code == 0
    assert "done" in out
    assert err.count("warning: ") == 1
    assert "tensorboard failed with OSError: no space left; the run itself is complete" in err


def test_a_draft_that_fails_is_told_at_the_end_and_the_run_goes_on(drafts: Drafts, tmp_path: Path) -> None:
    def full(values: Sequence[TrackedValue]) -> None:
        drafts.has_points.set()
        raise OSError("no space left")

    drafts.add = full  # type: ignore[method-assign]
    following = Patient(drafts)
    run = simcluster.run(TINY, out=tmp_path / "run", report=False, follower=following)
    assert run.summary["steps"] == 6
    assert following.end(keep=False) == {"tensorboard": "tensorboard failed with OSError: no space left"}


def test_a_run_that_is_interrupted_keeps_its_draft_with_all_points(drafts: Drafts, tmp_path: Path) -> None:
    following = Patient(drafts)
    run = simcluster.run(TINY, out=tmp_path / "run", report=False, follower=following)
    following.end(keep=True)
    assert drafts.kept == [True]
    losses = [value for value in hand_over(run).values if value.name == "loss"]
    assert [value for value in drafts.points if value.name == "loss"] == losses
