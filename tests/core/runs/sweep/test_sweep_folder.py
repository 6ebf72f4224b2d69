"""A sweep read back from its folder: the same table, the same pages, and what is no sweep is told."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import simcluster
from simcluster.errors import UsageError
from simcluster.results import Sweep
from tests.lab.reports.test_explorer import given

KEY = "topology.links.pi5-mini1.bandwidth"
PAGES = ("report.html", "explorer.html")


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    experiment = {
        "name": "small",
        "topology": "smolcluster",
        "algorithm": {"name": "sync_ps"},
        "workload": {"name": "quadratic"},
        "stop": {"steps": 3},
    }
    folder = tmp_path_factory.mktemp("swept") / "s"
    return simcluster.sweep(experiment, {KEY: ["1 Mbps", "1 Gbps"]}, seeds=2, out=folder, jobs=1)


@pytest.mark.slow
def test_a_sweep_is_read_back_whole(swept: Sweep) -> None:
    again = simcluster.load_sweep(swept.folder)
    assert (again.name, again.keys, again.failed) == ("small", [KEY], 0)
    assert again.table.to_csv() == swept.table.to_csv()
    assert again.folders == swept.folders
    assert [run and run.summary["seed"] for run in again.runs] == [0, 1, 0, 1]
    assert again.plot.measures == swept.plot.measures
    assert repr(again) == repr(swept) == f"Sweep({str(swept.folder)!r}: 4 points, 0 failed)"


def test_report_writes_the_pages_of_a_sweep_again_to_the_byte(swept: Sweep, command: Any) -> None:
    before = [(swept.folder / name).read_bytes() for name in PAGES]
    for name in PAGES:
        (swept.folder / name).unlink()
    code, out, _ = command("report", str(swept.folder))
    assert code == 0
    assert out.split() == [str(swept.folder / name) for name in PAGES]
    assert [(swept.folder / name).read_bytes() for name in PAGES] == before


def test_the_explorer_knows_which_runs_have_a_report(swept: Sweep, command: Any) -> None:
    page = swept.folder / "explorer.html"
    assert given(page.read_text())["reports"] == [False] * 4
    assert command("report", str(swept.folders[2]))[0] == 0
    assert command("report", str(swept.folder))[0] == 0
    assert given(page.read_text())["reports"] == [False, False, True, False]
    (swept.folders[2] / "report.html").unlink()


def test_each_point_has_what_it_differs_in(swept: Sweep) -> None:
    data = given((swept.folder / "explorer.html").read_text())
    assert {one["name"]: one["labels"] for one in data["own"]} == {
        KEY: ["1 Mbps", "1 Mbps", "1 Gbps", "1 Gbps"],
        "seed": ["0", "1", "0", "1"],
    }
    assert "algorithm.name: sync_ps" in data["common"]


def test_what_is_no_finished_sweep_is_told(swept: Sweep, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"(?s)sweep.yaml.*table.parquet"):
        simcluster.load_sweep(tmp_path)
    (tmp_path / "sweep.yaml").write_text("axes: 3\n")
    (tmp_path / "table.parquet").write_bytes(b"no table")
    with pytest.raises(UsageError, match="what a sweep writes there"):
        simcluster.load_sweep(tmp_path)
    (tmp_path / "sweep.yaml").write_bytes((swept.folder / "sweep.yaml").read_bytes())
    with pytest.raises(UsageError, match="the table of a sweep that ended"):
        _ = simcluster.load_sweep(tmp_path).table


def test_a_table_of_an_older_version_is_read_and_drawn_as_before(swept: Sweep, tmp_path: Path) -> None:
    shutil.copytree(swept.folder, tmp_path / "old")
    swept.as_text.to_parquet(tmp_path / "old" / "table.parquet", index=False)
    old = simcluster.load_sweep(tmp_path / "old")
    assert (swept.columns, old.columns) == ([f"{KEY}_bps"], [KEY])
    assert list(old.table[KEY]) == ["1 Mbps", "1 Mbps", "1 Gbps", "1 Gbps"]
    assert list(swept.table[f"{KEY}_bps"]) == [1e6, 1e6, 1e9, 1e9]
    assert old.plot.against(KEY).to_json() == swept.plot.against(f"{KEY}_bps").to_json()
    old.write_pages()
    assert (tmp_path / "old" / "report.html").read_bytes() == (swept.folder / "report.html").read_bytes()
    told, now = (given((sweep.folder / "explorer.html").read_text()) for sweep in (old, swept))
    assert {key: told[key] for key in ("keys", "start", "own")} == {key: now[key] for key in ("keys", "start", "own")}
