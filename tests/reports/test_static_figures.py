"""`save_figure`: what is in a plotly figure is in the file for paper, the same bytes every time."""

from __future__ import annotations

import builtins
import re
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st

import simcluster
from simcluster.errors import UsageError
from simcluster.reports.figure_style import styled
from simcluster.reports.static.words import colour, plain, readable_on
from simcluster.results import Run
from simcluster.runs.write import write_run
from simcluster.topology import load
from tests.support.made_up_runs import made_up_config, made_up_run, topology_document

pytest.importorskip("matplotlib")


def drawn(figure: go.Figure, height_in: float | None = None) -> Any:
    """The page of matplotlib that *figure* becomes."""
    from matplotlib.figure import Figure

    from simcluster.reports.static.draw import draw

    page = Figure(figsize=(6.5, height_in or 4))
    draw(figure, page)
    return page


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder, topology = tmp_path_factory.mktemp("run"), load(topology_document())
    return Run(write_run(folder, made_up_config(), topology, made_up_run(20, staleness=True), "0.1.0"))


def test_lines_have_the_same_points_colours_names_and_axes() -> None:
    figure = styled(
        go.Figure(), xaxis={"type": "log", "title": {"text": "bandwidth (Mbps)"}}, yaxis={"tickformat": ".0%"}
    )
    figure.add_scatter(x=[1, 10, 100], y=[0.1, None, 0.3], name="a &lt;b&gt;", line={"color": "#d1495b", "width": 3})
    figure.add_scatter(x=[1, 100], y=[0.3, 0.1], name="dashed", mode="lines", line={"dash": "dash"})
    page = drawn(figure)
    (axes,) = page.axes
    first, second = axes.lines
    assert list(first.get_xdata()) == [1, 10, 100]
    assert [float(y) for y in first.get_ydata()] == pytest.approx([0.1, np.nan, 0.3], nan_ok=True)
    assert first.get_color() == pytest.approx((0xD1 / 255, 0x49 / 255, 0x5B / 255, 1))
    assert second.get_linestyle() == "--"
    assert (axes.get_xscale(), axes.get_xlabel()) == ("log", "bandwidth (Mbps)")
    assert axes.yaxis.get_major_formatter()(0.3) == "30%"
    assert [text.get_text() for text in page.legends[0].texts] == ["a <b>", "dashed"]


def test_bars_stand_on_each_other_or_beside_each_other_or_at_their_base() -> None:
    def starts(mode: str, **more: Any) -> list[float]:
        figure = go.Figure(layout={"barmode": mode})
        for length in (2.0, 3.0):
            figure.add_bar(x=["one"], y=[length], name=str(length), **more)
        return [bar.get_y() for bar in drawn(figure).axes[0].patches]

    assert starts("stack") == [0, 2]
    assert starts("group") == [0, 0]
    assert starts("overlay", base=[7.0]) == [7, 7]
    beside = go.Figure(data=[go.Bar(x=["one", "two"], y=[1, 1]), go.Bar(x=["one", "two"], y=[1, 1])])
    lefts = [bar.get_x() for bar in drawn(beside).axes[0].patches]
    assert lefts == pytest.approx([-0.375, 0.625, 0, 1])  # a quarter of the room is between them


def test_bars_that_lie_have_their_whiskers() -> None:
    figure = go.Figure(
        go.Bar(orientation="h", x=[5.0], y=["a"], error_x={"type": "data", "array": [2.0], "arrayminus": [1.0]})
    )
    (axes,) = drawn(figure).axes
    (whisker,) = axes.collections
    assert whisker.get_segments()[0].tolist() == [[4.0, 0.0], [7.0, 0.0]]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a"]


def test_a_heat_map_has_its_cells_where_they_belong_and_their_words() -> None:
    cells = [[1.0, None], [3.0, 4.0]]
    figure = go.Figure(
        go.Heatmap(z=cells, x=["p", "q"], y=["r", "s"], zmin=0, zmax=4, text=[["1", ""], ["3", "4"]],
                   texttemplate="%{text}", colorscale=[[0, "#000000"], [1, "#ffffff"]]),
        layout={"yaxis": {"autorange": "reversed"}},
    )  # fmt: skip
    axes, bar = drawn(figure).axes
    (mesh,) = axes.collections
    assert np.ma.filled(mesh.get_array(), -1).tolist() == [[1, -1], [3, 4]]
    assert [(text.get_text(), *text.get_position()) for text in axes.texts] == [("1", 0, 0), ("3", 0, 1), ("4", 1, 1)]
    assert axes.get_ylim() == (1.5, -0.5)
    assert bar.get_ylim() == (0, 4)


def test_a_filled_outline_is_filled_and_a_gap_parts_it() -> None:
    figure = go.Figure(go.Scatter(
        x=[0, 1, 1, None, 2, 3, 3], y=[0, 0, 1, None, 0, 0, 1], fill="toself", fillcolor="rgba(255,0,0,0.5)",
        line={"width": 0}, mode="lines",
    ))  # fmt: skip
    first, second = drawn(figure).axes[0].patches
    assert first.get_facecolor() == (1, 0, 0, 0.5)
    assert second.get_xy()[:3].tolist() == [[2, 0], [3, 0], [3, 1]]


def test_annotations_and_lines_across_stand_at_their_places_on_logarithmic_axes_too() -> None:
    figure = go.Figure(go.Scatter(x=[1, 1000], y=[1, 10]), layout={"xaxis": {"type": "log"}})
    figure.add_annotation(x=2, y=5, text="<b>here</b>")  # plotly has the logarithm: 100
    figure.add_vline(x=10)  # but a shape has the value
    figure.add_vrect(x0=20, x1=30, fillcolor="#ff0000", line_width=0)
    (axes,) = drawn(figure).axes
    assert [(text.get_text(), text.xy) for text in axes.texts] == [("here", (100.0, 5.0))]
    assert list(axes.lines[-1].get_xdata()) == [10, 10]
    (band,) = axes.patches
    assert (band.get_x(), band.get_width()) == (20, 10)
    assert axes.get_xlim() == pytest.approx((1000**-0.05, 1000**1.05)), "what is marked changes no axis"


def test_panels_beside_each_other_are_panels_beside_each_other(run: Run) -> None:
    page = drawn(run.plot.convergence())
    loss, accuracy = page.axes
    assert (loss.get_ylabel(), accuracy.get_ylabel()) == ("loss", "accuracy")
    assert len(loss.lines) == 6  # five nodes and the evaluation
    assert len(accuracy.lines) == 1


@pytest.mark.parametrize("name", ["timeline", "busy", "links", "staleness", "topology", "convergence"])
def test_every_figure_of_a_run_is_drawn(run: Run, name: str) -> None:
    figure = getattr(run.plot, name)()
    page = drawn(figure)
    marks = sum(len(axes.lines) + len(axes.patches) + len(axes.collections) for axes in page.axes)
    assert marks >= len([trace for trace in figure.data if trace.type != "heatmap"])


@pytest.mark.parametrize("suffix", [".svg", ".pdf", ".png"])
def test_files_are_the_same_bytes_every_time(run: Run, tmp_path: Path, suffix: str) -> None:
    figure = run.plot.links()
    paths = [simcluster.save_figure(figure, tmp_path / f"{name}{suffix}", width_in=4) for name in "ab"]
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_an_svg_is_as_large_as_asked_and_has_words_as_words(run: Run, tmp_path: Path) -> None:
    path = simcluster.save_figure(run.plot.links(), tmp_path / "f.svg", width_in=5, height_in=2)
    text = path.read_text()
    assert 'width="360pt" height="144pt"' in text  # 72 points an inch
    assert "pi4-sw0" in re.sub(r"<[^>]*>", "", text)
    assert "<dc:date>" not in text


def test_what_it_cannot_draw_is_refused_by_name(tmp_path: Path) -> None:
    for figure, words in (
        (go.Figure(go.Pie(values=[1])), "a trace of the kind pie"),
        (go.Figure(go.Scatter(x=[1], y=[1], fill="tozeroy")), "filled 'tozeroy'"),
        (go.Figure(go.Scatter(x=[1], y=[1], mode="markers", marker={"symbol": "hexagram"})), "hexagram"),
        (go.Figure(layout={"shapes": [{"type": "circle"}]}), "circle"),
    ):
        with pytest.raises(UsageError, match=words):
            simcluster.save_figure(figure, tmp_path / "f.svg")
    assert list(tmp_path.iterdir()) == []


def test_wrong_names_and_sizes_are_told_together(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        simcluster.save_figure(go.Figure(), tmp_path / "f.gif", width_in=0.1, height_in=1000)
    assert [problem.key for problem in caught.value.problems] == ["path", "width_in", "height_in"]
    with pytest.raises(UsageError, match="a folder that exists"):
        simcluster.save_figure(go.Figure(), tmp_path / "nowhere" / "f.svg")


def test_without_matplotlib_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **more: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UsageError, match=r"pip install 'simcluster\[plot-static\]'"):
        simcluster.save_figure(go.Figure(), tmp_path / "f.svg")


def test_text_loses_its_markup_and_nothing_else() -> None:
    assert plain("<b>a</b><br>5 &lt; 6 $x_1$") == "a\n5 < 6 $x_1$"
    assert plain(None) == ""


@given(st.integers(0, 255), st.integers(0, 255), st.integers(0, 255), st.floats(0, 1))
def test_colours_are_the_same_in_both_spellings(red: int, green: int, blue: int, share: float) -> None:
    by_name = colour(f"#{red:02x}{green:02x}{blue:02x}", share)
    assert colour(f"rgba({red},{green},{blue},1)", share) == pytest.approx(by_name)


def test_words_on_colours_can_be_read() -> None:
    assert readable_on((0, 0, 0, 1)) == "white"
    assert readable_on((1, 1, 1, 1)) == readable_on((0, 0, 0, 0.1)) == "#10151b"
