"""Figures and the report of a sweep: what they show is what the table says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import simcluster
from simcluster.errors import UsageError
from simcluster.lab.reports import scales
from simcluster.lab.reports.sweeps.lines import scale_of, swept_scale
from simcluster.lab.reports.sweeps.report import answers, render
from simcluster.results import Sweep
from tests.support.browser import assert_drawn, chromium, needs_browser
from tests.support.devtools import browser
from tests.support.looks import check_looks

BANDWIDTH, INTERVAL = "topology.links.pi5-mini1.bandwidth", "algorithm.pull_interval"
SMALL: dict[str, Any] = {
    "name": "small <b>",
    "topology": "smolcluster",
    "algorithm": {"name": "sync_ps"},
    "workload": {"name": "quadratic"},
    "stop": {"steps": 6},
    "evaluate_every": 2,
}


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    folder = tmp_path_factory.mktemp("swept") / "s"
    values = {BANDWIDTH: ["20 kbps", "1 Mbps", "1 Gbps"], INTERVAL: [1, 3]}
    return simcluster.sweep(SMALL, values, seeds=2, out=folder, jobs=1)


@pytest.mark.parametrize(
    ("values", "title", "places", "logarithmic"),
    [
        ([1, 2, 4], "k", [1, 2, 4], False),
        ([1, 10, 100], "k", [1, 10, 100], True),
        (["10 Mbps", "1 Gbps"], "k (Mbps)", [10, 1000], True),
        (["1 ms", "2000 us"], "k (ms)", [1, 2], False),
        (["ring", "naive"], "k", ["ring", "naive"], False),
        ([True, False], "k", ["True", "False"], False),
    ],
)
def test_swept_values_stand_where_they_belong(values: Any, title: str, places: Any, logarithmic: bool) -> None:
    scale = swept_scale("k", values)
    assert (scale.title, scale.is_logarithmic) == (title, logarithmic)
    assert scale.places == pytest.approx(places) if not scale.is_category else scale.places == places


@pytest.mark.slow
def test_a_line_has_the_means_over_seeds_and_a_band_what_they_span(swept: Sweep) -> None:
    figure = swept.plot.against(BANDWIDTH, "loss")
    lines = [trace for trace in figure.data if trace.mode == "lines+markers"]
    bands = [trace for trace in figure.data if trace.fill == "toself"]
    assert [line.name for line in lines] == ["pull_interval 1", "pull_interval 3"]
    rows = swept.table[(swept.table[INTERVAL] == 1) & (swept.table[f"{BANDWIDTH}_bps"] == 1e6)]
    assert lines[0].x[1] == pytest.approx(1)
    assert lines[0].y[1] == pytest.approx(rows["loss"].mean())
    assert len(bands) == 2
    assert bands[0].y[1] == pytest.approx(rows["loss"].max())


def test_a_whole_topology_is_called_by_its_name(swept: Sweep) -> None:
    rest = {"nodes": {"a": {"device": "x86-laptop"}}, "links": []}
    named = swept.as_text.assign(topology=[json.dumps({"name": f"shelf {i}", **rest}) for i in range(len(swept.table))])
    scale, place = scale_of(named, "topology")
    assert scale.places == [f"shelf {i}" for i in range(len(named))]
    assert place[named["topology"][3]] == "shelf 3"


def test_a_grid_has_a_cell_for_each_combination(swept: Sweep) -> None:
    cells = swept.plot.grid(INTERVAL, BANDWIDTH, "elapsed_s").data[0].z
    assert cells.shape == (3, 2)
    assert (cells[0] > cells[2]).all(), "20 kbps is slower than 1 Gbps"


def test_convergence_has_a_line_for_each_combination(swept: Sweep) -> None:
    for x in ("time", "step", "bytes"):
        names = [trace.name for trace in swept.plot.convergence(x).data if trace.name]
        assert len(set(names)) == 6


def test_a_sweep_over_runs_of_one_step_has_no_curve_against_steps(tmp_path: Path) -> None:
    one_step = {
        "topology": {"generator": "star", "workers": 2},
        "algorithm": "sync_ps",
        "workload": {"name": "quadratic"},
        "stop": {"steps": 1},
    }
    simcluster.sweep(one_step, {"seed": [0, 1]}, out=tmp_path / "sweep", jobs=1)
    page = (tmp_path / "sweep" / "report.html").read_text()
    assert "curve loss-time" in page
    assert "curve loss-step" not in page


def test_what_was_not_swept_or_not_measured_is_told(swept: Sweep) -> None:
    with pytest.raises(UsageError, match="pull_interval"):
        swept.plot.against("algorithm.pull_intervl")
    with pytest.raises(UsageError, match="elapsed_s"):
        swept.plot.against(y="elapsd_s")


def test_the_answer_names_the_best_combination(swept: Sweep) -> None:
    first = answers(swept.as_text, [BANDWIDTH, INTERVAL])[0]
    # 1 Mbps is as good as 1 Gbps for messages of some bytes; of equals the first is named, and their number.
    assert "(and with 1 other), against" in first
    assert first.startswith("A run is over soonest with bandwidth 1 Mbps and pull_interval 1: ")
    assert first.endswith("with bandwidth 20 kbps and pull_interval 1.")


def test_the_report_escapes_what_it_is_told(swept: Sweep) -> None:
    page = (swept.folder / "report.html").read_text()
    assert "small &lt;b&gt;" in page
    assert "small <b>" not in page
    assert page == render("small <b>", swept.as_text, [BANDWIDTH, INTERVAL], swept.plot)


@pytest.mark.slow
@needs_browser
@pytest.mark.browser
def test_a_browser_draws_the_report(swept: Sweep, tmp_path: Path) -> None:
    assert_drawn(chromium((swept.folder / "report.html").as_uri(), tmp_path / "profile", 500))


def test_places_between_values_are_said_in_three_digits() -> None:
    scale = swept_scale("k", ["10 Mbps", "10 Gbps"])
    assert [scale.say(place) for place in (137.4, 8384.2, 10.0)] == ["137 Mbps", "8380 Mbps", "10 Mbps"]
    assert swept_scale("k", ["ring", "star"]).say("ring") == "ring"


def test_an_axis_is_logarithmic_where_values_are_wide_and_starts_at_zero_elsewhere(
    swept: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scales, "LOGARITHMIC_FROM", 10.0)
    times = swept.table["elapsed_s"]
    assert times.max() > 10 * times.min()  # 158 ms on 20 kbps, 10 ms on 1 Gbps
    assert swept.plot.against(BANDWIDTH, "elapsed_s").layout.yaxis.type == "log"
    assert swept.plot.convergence("time").layout.xaxis.type == "log"
    sent = swept.table["bytes_sent"]
    assert sent.max() < 10 * sent.min()
    assert swept.plot.against(BANDWIDTH, "bytes_sent").layout.yaxis.rangemode == "tozero"
    assert swept.plot.convergence("step").layout.xaxis.type is None


@pytest.mark.slow
@needs_browser
@pytest.mark.browser
def test_a_name_of_a_line_is_shown_once_for_both_curves_and_hides_it_by_a_key(swept: Sweep, tmp_path: Path) -> None:
    with browser(tmp_path) as tab:
        for width in (1280, 390):
            tab.look(width, dark=width == 390)
            tab.open((swept.folder / "report.html").as_uri())
            tab.wait_for("document.documentElement.dataset.drawn === 'true'")
            tab.ask("window.keys = [...document.querySelectorAll('section')].at(-2).querySelector('.line-names')")
            assert tab.ask("keys.closest('section').querySelector('h2').textContent") == "Convergence"
            names = tab.ask("[...keys.children].map((button) => button.textContent)")
            assert names == [
                f"bandwidth {b}, pull_interval {k}" for b in ("20 kbps", "1 Mbps", "1 Gbps") for k in (1, 3)
            ]
            assert tab.ask("document.querySelectorAll('.legend').length") == 0
            tab.ask("keys.children[1].focus()")
            for kind in ("keyDown", "keyUp"):
                tab.call("Input.dispatchKeyEvent", type=kind, key=" ", code="Space", windowsVirtualKeyCode=32, text=" ")
            assert tab.ask("keys.children[1].getAttribute('aria-pressed')") == "false"
            shown = "keys.closest('section').querySelectorAll('.figure .scatterlayer .js-line').length"
            before = tab.ask(shown)
            tab.ask("keys.children[1].click()")
            assert tab.ask(shown) > before
            assert tab.ask("document.documentElement.scrollWidth") <= width
        check_looks(tab)
        assert tab.complaints == []
