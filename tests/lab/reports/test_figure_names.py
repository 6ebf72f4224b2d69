"""`simcluster figure`: each figure of a folder by its name, and errors that say what there is."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from simcluster.cli.app import app
from simcluster.errors import UsageError
from simcluster.lab.cli.figure_names import check_named, figures_of
from simcluster.lab.reports.plots import RunPlots
from simcluster.lab.reports.sweeps.plots import SweepPlots
from simcluster.lab.what_if.plots import WhatIfPlots
from simcluster.runs.write import write_run
from simcluster.topology import load
from tests.support.made_up_runs import made_up_config, made_up_run, topology_document


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder, topology = tmp_path_factory.mktemp("runs"), load(topology_document())
    for backend in ("sim", "sockets"):
        record = made_up_run(10, stretch=1.0 if backend == "sim" else 1.5)
        config = made_up_config(backend=backend)
        write_run(folder / backend, config, topology, record, "0.1.0")
    return [folder / "sim", folder / "sockets"]


def test_every_figure_of_the_classes_can_be_named(runs: list[Path]) -> None:
    found = figures_of(runs[0])
    assert list(found) == ["convergence", "timeline", "busy", "links", "staleness", "topology", "consensus"]
    assert {"against", "grid", "convergence", "time_to_target", "speedup", "efficiency", "winner"} < vars(
        SweepPlots
    ).keys()
    assert all(name in vars(RunPlots) for name in found)


def test_settings_reach_the_figure(runs: list[Path]) -> None:
    figure = figures_of(runs[0])["convergence"](x="bytes", panels=["loss"])
    assert figure.layout.xaxis.title.text == "bytes sent (MB)"
    assert {trace.name for trace in figure.data} == {"training, each node", "evaluated at rank 0"}


def test_several_runs_are_drawn_together(runs: list[Path]) -> None:
    figures = figures_of(runs[0], runs[1:])
    assert len(figures["convergence"](x="step", panels=["loss"]).data) == 2
    assert "the whole run" in {trace.name for trace in figures["predicted_measured"]().data}


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("convergenc", {}, "did you mean 'convergence'"),
        ("convergence", {"x": "minutes"}, "x: found 'minutes', expected 'time', 'step', 'bytes' or 'energy'"),
        ("convergence", {"y": 1}, "unknown setting of convergence"),
        ("busy", {"x": 1}, "unknown setting of busy; expected none"),
        ("timeline", {"max_bars": "many"}, "max_bars: found 'many'"),
    ],
)
def test_what_is_wrong_is_told(runs: list[Path], name: str, settings: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        check_named(figures_of(runs[0]), name, settings)


def test_an_answered_question_is_drawn_from_its_file(tmp_path: Path) -> None:
    change = {"kind": "bandwidth", "part": "a-b", "change": "a-b: twice the bandwidth", "value": 1.0, "relative": -0.5,
              "lowest": -0.6, "highest": -0.4, "price_usd": None, "staleness": None, "error": None}  # fmt: skip
    path = [
        {"kind": "compute", "where": "a", "seconds": 1.5, "share": 0.75},
        {"kind": "link", "where": "a-b", "seconds": 0.5, "share": 0.25},
    ]
    told = {"goal": "step-time", "target": None, "by_seed": {"0": 2.0, "1": 2.0}, "changes": [change], "path": path}
    (tmp_path / "whatif.json").write_bytes(msgspec.json.encode(told))
    figures = figures_of(tmp_path)
    assert figures.keys() == {"tornado", "path"} <= vars(WhatIfPlots).keys()
    (bar,) = figures["tornado"]().data
    assert (bar.x[0], bar.error_x.array[0], bar.error_x.arrayminus[0]) == pytest.approx((-50, 10, 10))
    assert [trace.x[0] for trace in figures["path"]().data] == [1.5, 0.5]
    (tmp_path / "whatif.json").write_text("{}")
    with pytest.raises(UsageError, match=r"whatif\.json"):
        figures_of(tmp_path)


def test_the_command_lists_draws_and_refuses(runs: list[Path], tmp_path: Path) -> None:
    def command(*words: str) -> str:
        done = CliRunner().invoke(app, ["figure", str(runs[0]), *words], catch_exceptions=True)
        return done.output if done.exception is None else str(done.exception)

    assert "timeline" in command()
    page = tmp_path / "f.html"
    assert command("links", "--out", str(page)) == f"{page}\n"
    assert "Plotly.react" in page.read_text()
    assert ".svg, .pdf, .png, .html" in command("links", "--out", str(tmp_path / "f.gif"))
    assert ".svg, .pdf, .png, .html" in command("links")
    assert "did you mean 'links'?" in command("lnks")
    assert "KEY=VALUE" in command("links", "x", "--out", str(page))


def test_a_sweep_without_its_table_is_told(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text("experiment: x\naxes: []\n")
    with pytest.raises(UsageError, match=r"table\.parquet"):
        figures_of(tmp_path)
