"""`save_figure`: plotly's own drawing in a file for paper, the same bytes every time, without a network."""

from __future__ import annotations

import builtins
import re
import struct
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest

import simcluster
from simcluster.errors import UsageError
from simcluster.process.installed import install_extra
from simcluster.results import Run
from simcluster.runs.write import write_run
from simcluster.topology import load
from tests.support.browser import needs_browser
from tests.support.levels import sample_of
from tests.support.made_up_runs import made_up_config, made_up_run, topology_document

pytest.importorskip("kaleido")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder, topology = tmp_path_factory.mktemp("run"), load(topology_document())
    return Run(write_run(folder, made_up_config(), topology, made_up_run(20, staleness=True), "0.1.0"))


@pytest.mark.slow
@needs_browser
@pytest.mark.browser
@pytest.mark.parametrize("name", sample_of(["timeline", "busy", "links", "staleness", "topology", "convergence"]))
def test_each_kind_of_figure_is_drawn(run: Run, tmp_path: Path, name: str) -> None:
    text = simcluster.save_figure(getattr(run.plot, name)(), tmp_path / "f.svg").read_text()
    words = re.sub(r"<[^>]*>", " ", text)
    assert "pi4" in words or name in ("staleness", "convergence")
    assert text.count("<path") > 10
    assert '"http' not in text.replace('"http://www.w3.org', ""), "a file of its own"


@pytest.mark.slow
@needs_browser
@pytest.mark.browser
@pytest.mark.parametrize("suffix", [".svg", ".pdf", ".png"])
def test_files_are_the_same_bytes_every_time_and_of_the_size_asked_for(run: Run, tmp_path: Path, suffix: str) -> None:
    figure = run.plot.links()
    drawn, again = (
        simcluster.save_figure(figure, tmp_path / f"{name}{suffix}", width_in=5, height_in=2).read_bytes()
        for name in "ab"
    )
    assert drawn == again
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
    if suffix == ".svg":
        assert b'width="480" height="192"' in drawn[:400]  # 96 to an inch
    elif suffix == ".png":
        assert struct.unpack(">II", drawn[16:24]) == (1000, 400)
    else:
        box = re.search(rb"/MediaBox \[0 0 ([\d.]+) ([\d.]+)\]", drawn)
        assert box is not None
        assert (float(box[1]), float(box[2])) == pytest.approx((360, 144), abs=1)
        assert b"D:20000101000000" in drawn


@pytest.mark.slow
@needs_browser
@pytest.mark.browser
def test_the_figure_stays_as_it_was_and_dollars_stay_dollars(tmp_path: Path) -> None:
    figure = go.Figure(go.Scatter(x=[1, 2], y=[3, 4], name="costs $5 or $6", showlegend=True))
    before = figure.to_json()
    text = simcluster.save_figure(figure, tmp_path / "f.svg").read_text()
    assert figure.to_json() == before
    assert "costs $5 or $6" in text


def test_wrong_names_and_sizes_are_told_together(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        simcluster.save_figure(go.Figure(), tmp_path / "f.gif", width_in=0.1, height_in=1000)
    assert [problem.key for problem in caught.value.problems] == ["path", "width_in", "height_in"]
    with pytest.raises(UsageError, match="a folder that exists"):
        simcluster.save_figure(go.Figure(), tmp_path / "nowhere" / "f.svg")


def test_without_kaleido_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **more: Any) -> Any:
        if name.startswith("kaleido"):
            raise ImportError(name)
        return real(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UsageError, match=re.escape(install_extra("plot-static"))):
        simcluster.save_figure(go.Figure(), tmp_path / "f.svg")


@pytest.mark.parametrize("browser", ["/nowhere/chromium", "/bin/true"])
def test_without_a_browser_that_draws_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, browser: str
) -> None:
    monkeypatch.setenv("BROWSER_PATH", browser)
    with pytest.raises(
        UsageError, match="`apt install chromium fonts-dejavu-core`, `kaleido_get_chrome`, or a browser"
    ):
        simcluster.save_figure(go.Figure(), tmp_path / "f.svg")
    assert list(tmp_path.iterdir()) == []
