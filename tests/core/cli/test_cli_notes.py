"""Options that would do nothing say so, and a table says nothing twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from simcluster.cli.app import app

SMALL = ["--set", "stop.steps=1", "--set", "workload={name: quadratic}", "--no-report", "--out"]


@pytest.mark.parametrize(
    ("command", "more", "note"),
    [
        ("run", ["--watch"], "note: --watch draws on a terminal"),
        ("sweep", ["--jobs", "1"], "note: one run, since nothing is swept"),
    ],
)
def test_an_option_or_a_command_without_effect_says_so(
    command: str, more: list[str], note: str, tmp_path: Path
) -> None:
    done = CliRunner().invoke(app, [command, "quickstart", *SMALL, str(tmp_path / "out"), *more])
    assert done.exit_code == 0, done.output
    assert note in done.stderr


def test_a_sweep_of_several_points_says_nothing(tmp_path: Path) -> None:
    given = ["sweep", "quickstart", *SMALL, str(tmp_path / "out"), "--jobs", "1", "--seeds", "2"]
    done = CliRunner().invoke(app, given)
    assert done.exit_code == 0, done.output
    assert "note:" not in done.output


def test_a_swept_seed_is_one_column(tmp_path: Path) -> None:
    given = ["sweep", "quickstart", *SMALL[:4], "--out", str(tmp_path / "out"), "--jobs", "1", "--set", "seed=1,2"]
    done = CliRunner().invoke(app, given)
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[0].split().count("seed") == 1
    assert (tmp_path / "out" / "report.html").read_text().count('<th scope="col">seed</th>') == 1
