"""Runs that the page starts: no text becomes an option, nothing is written elsewhere, and they can be stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simcluster.errors import UsageError
from simcluster.lab.ui.run_children import Child, Children, RunForm, command
from tests.lab.ui.served import Asked
from tests.support.socket_runs import wait_for


def test_what_is_typed_stays_the_value_of_its_option(tmp_path: Path) -> None:
    wanted = RunForm(experiment="--help", algorithm="--out=/", sets=["--x", "a=1;rm -rf /", " "], seed=3)
    found = command(wanted, tmp_path / "a")
    assert found == [
        "run", "--algorithm=--out=/", "--seed=3", "--set=--x", "--set=a=1;rm -rf /", f"--out={tmp_path}/a",
        "--", "--help",
    ]  # fmt: skip


def test_a_run_that_is_stopped_before_it_has_begun_is_stopped_not_failed(tmp_path: Path) -> None:
    # Python has not yet set a handler for SIGINT, which then ends it with another code than 130.
    child = Child("early", ["run", "quickstart", f"--out={tmp_path}/early"])
    child.stop()
    child.wait(60.0)
    child.stop()
    assert child.as_dict()["code"] == 130


def test_a_sweep_has_its_own_options_and_a_run_is_refused_with_them(tmp_path: Path) -> None:
    wanted = RunForm(
        kind="sweep",
        experiment="quickstart",
        sets=["a=1,2"],
        pairs=["b=1,2", "c=3,4", ""],
        targets=["--out=/"],
        seeds=3,
    )
    assert command(wanted, tmp_path / "s") == [
        "sweep", "--seeds=3", "--set=a=1,2", "--pair=b=1,2", "--pair=c=3,4", "--target=--out=/", f"--out={tmp_path}/s",
        "--", "quickstart",
    ]  # fmt: skip
    with pytest.raises(UsageError, match=r"(?s)seeds: .*pairs: .*targets: found a run with it, expected a sweep"):
        command(wanted.model_copy(update={"kind": "run"}), tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"folder": "../a"}, {"folder": "/tmp/a"}, {"folder": ".a"}, {"folder": "a/b"}, {"folder": "a" * 200},
        {"experiment": ""}, {"experiment": "a\0"}, {"sets": ["a=1"] * 201}, {"seed": -1}, {"shell": "yes"},
        {"kind": "node"}, {"kind": "sweep", "seeds": 0}, {"seeds": 2}, {"pairs": ["a=1"]}, {"targets": ["loss=1"]},
    ],
)  # fmt: skip
def test_a_form_that_cannot_be_is_refused_with_its_place_and_starts_nothing(tmp_path: Path, changes: Any) -> None:
    ask = Asked(tmp_path)
    answer = ask("POST", "/api/start", {"experiment": "quickstart", **changes})
    assert answer.status_code in (400, 422)
    assert all(isinstance(problem, str) and problem for problem in answer.json()["problems"])
    assert ask.children.all() == []
    assert list(tmp_path.iterdir()) == []


def ended(children: Children) -> list[dict[str, Any]] | None:
    found = children.all()
    return found if all(child["code"] is not None for child in found) else None


@pytest.mark.slow
def test_a_run_that_is_refused_says_why_and_writes_nothing(tmp_path: Path) -> None:
    children = Children(tmp_path)
    children.start(RunForm(experiment="quickstart", sets=["stop.steps=many"]))
    [child] = wait_for(lambda: ended(children))
    assert child["code"] == 2
    assert any("stop.steps (set by --set): found 'many'" in line for line in child["lines"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_two_runs_without_a_name_get_folders_of_their_own_and_end_as_runs(tmp_path: Path) -> None:
    children = Children(tmp_path)
    wanted = RunForm(experiment="quickstart", sets=["stop.steps=2", "workload={name: quadratic}"])
    names = [children.start(wanted)["id"] for _ in range(2)]
    assert names == ["quickstart-sim-1", "quickstart-sim-2"]
    wait_for(lambda: ended(children))
    assert [child["code"] for child in children.all()] == [0, 0]
    assert all((tmp_path / name / "summary.json").is_file() for name in names)


@pytest.mark.slow
def test_a_stopped_run_ends_as_by_ctrl_c_and_leaves_no_state_behind(tmp_path: Path) -> None:
    children = Children(tmp_path)
    children.start(RunForm(experiment="quickstart", sets=["stop.steps=1000000"], folder="long"))
    wait_for((tmp_path / "long" / "live.json").is_file)
    children.stop("long")
    [child] = wait_for(lambda: ended(children))
    assert child["code"] == 130
    assert not (tmp_path / "long" / "live.json").exists()


@pytest.mark.slow
def test_a_stopped_sweep_ends_as_by_ctrl_c_and_its_points_end_with_it(tmp_path: Path) -> None:
    children = Children(tmp_path)
    wanted = RunForm(kind="sweep", experiment="quickstart", sets=["stop.steps=1000000"], seeds=2)
    assert children.start(wanted)["id"] == "quickstart-sweep-1"
    folder = tmp_path / "quickstart-sweep-1"
    wait_for((folder / "sweep.yaml").is_file)
    children.stop("quickstart-sweep-1")
    [child] = wait_for(lambda: ended(children))  # its output ends with the last process that can write to it
    assert child["code"] == 130
    assert not (folder / "table.parquet").exists()
