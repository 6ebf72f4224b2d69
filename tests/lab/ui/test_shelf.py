"""The runs of a folder: those that ended, go on, were cut off or are damaged; sweeps; logs; what compares them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from simcluster.errors import UsageError
from simcluster.lab.ui.compared import compared
from simcluster.lab.ui.shelf import LOG_BYTES, RunShelf
from simcluster.watching.board import RunInfo, TelemetryBoard
from simcluster.watching.status import run_status
from tests.lab.ui.served import write_made_up


def write_live(folder: Path, **changes: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    run = run_status(TelemetryBoard(RunInfo(name="quickstart", nodes=["a"], algorithm="edp", topology="star", steps=9)))
    found = {"pid": os.getpid(), "host": os.uname().nodename, "run": run, "history": []} | changes
    (folder / "live.json").write_text(json.dumps(found))


def test_each_run_has_a_row_with_its_state(tmp_path: Path) -> None:
    write_made_up(tmp_path / "group" / "done")
    write_made_up(tmp_path / "failed", fail_at_step=20)
    write_live(tmp_path / "running")
    write_live(tmp_path / "cut", pid=2**22 + 1)  # above Linux's largest process id
    (write_made_up(tmp_path / "damaged") / "summary.json").write_text("{}")
    write_live(tmp_path / "odd", history="none")
    (tmp_path / "empty").mkdir()
    rows = {row["id"]: row for row in RunShelf(tmp_path).rows()}
    states = {name: row["state"] for name, row in rows.items()}
    assert states == {
        "group/done": "done", "failed": "failed", "running": "running", "cut": "cut off", "damaged": "damaged",
        "odd": "damaged",
    }  # fmt: skip
    assert rows["failed"]["error"]
    assert (rows["running"]["algorithm"], rows["running"]["of_steps"]) == ("edp", 9)
    assert rows["group/done"]["steps"] == 50


def test_a_run_that_goes_on_in_the_folder_of_an_earlier_one_is_shown_as_running(tmp_path: Path) -> None:
    shelf = RunShelf(tmp_path)
    write_made_up(tmp_path / "a")
    assert shelf.rows()[0]["state"] == "done"
    write_live(tmp_path / "a")
    assert shelf.rows()[0]["state"] == "running"


def test_a_log_is_shown_from_its_end_and_only_if_it_is_one(tmp_path: Path) -> None:
    logs = write_made_up(tmp_path / "a") / "logs"
    logs.mkdir()
    (logs / "mini1.log").write_text("first\n" + "x" * LOG_BYTES + "\nlast")
    (tmp_path / "secret.log").write_text("secret")
    os.symlink(tmp_path / "secret.log", logs / "link.log")
    shelf = RunShelf(tmp_path)
    assert shelf.log("a", "mini1.log").endswith("last")
    assert "first" not in shelf.log("a", "mini1.log")
    for name in ("../secret.log", "summary.json", "../config.yaml", ""):
        with pytest.raises(UsageError, match="expected one of"):
            shelf.log("a", name)
    with pytest.raises(OSError, match="symbolic link"):
        shelf.log("a", "link.log")


def test_compared_runs_show_a_curve_each_and_only_the_settings_that_differ(tmp_path: Path) -> None:
    write_made_up(tmp_path / "a")
    write_made_up(tmp_path / "b", seed=8, algorithm={"name": "edp"})
    shelf = RunShelf(tmp_path)
    for x in ("time", "step", "bytes"):
        found = compared(["a", "b"], [shelf.run("a"), shelf.run("b")], x)  # type: ignore[arg-type]
        assert [line["name"] for line in found["figures"]["loss"]["data"]] == ["a", "b"]
        assert found["settings"] == [
            ["seed", "7", "8"], ["algorithm.name", "sync_ps", "edp"], ["algorithm.pull_interval", "1", "-"]
        ]  # fmt: skip
    with pytest.raises(UsageError, match="expected 1 to 12 runs"):
        compared([], [], "time")


def test_a_what_if_is_one_row_with_its_page_and_its_points_are_below_it(tmp_path: Path) -> None:
    points = [f"{number:016x}" for number in range(3)]
    for name in ("answered", "begun"):
        for point in points:
            write_made_up(tmp_path / name / "points" / point)
    for name in ("whatif.json", "report.html"):
        (tmp_path / "answered" / name).write_text("{}")
    write_made_up(tmp_path / "mine" / "points" / "first")  # a user's folder that is called so
    shelf = RunShelf(tmp_path)
    rows = {row["id"]: row for row in shelf.rows()}
    assert {name: (row["kind"], row["state"]) for name, row in rows.items()} == {
        "answered": ("whatif", "done"), "begun": ("whatif", "unfinished"), "mine/points/first": ("run", "done"),
    }  # fmt: skip
    assert (rows["answered"]["points"], rows["answered"]["pages"]) == (3, ["report.html"])
    assert {row["id"] for row in shelf.rows("begun")} == {f"begun/points/{point}" for point in points}
