"""What results show in a notebook: small, readable in light and dark, escaped; and in plain text, short."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import simcluster
from simcluster.lab.reports.notebook import MOST_ROWS, card
from simcluster.lab.verify.verdict import Check, Verification
from simcluster.results import Run, Sweep, compare
from simcluster.runs.sweep.sweep_folder import SweepFolder
from simcluster.runs.write import write_run
from simcluster.topology import load
from tests.support.made_up_runs import made_up_config, made_up_run, topology_document


def write(folder: Path, **changes: Any) -> Run:
    return Run(write_run(folder, made_up_config(**changes), load(topology_document()), made_up_run(5), "0.1.0"))


def is_self_contained(html: str) -> bool:
    """Whether *html* loads nothing, runs nothing, and takes its colours from the page."""
    return re.search(r"<script|<link|<img|url\(|https?:|[^-]color:|background", html) is None


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    keys = {"topology.bandwidth": ["10 Mbps", "1 Gbps"], "stop.steps": [2, 3]}
    base = {"topology": {"generator": "star", "workers": 2}, "algorithm": "sync_ps", "workload": "quadratic"}
    folder = tmp_path_factory.mktemp("swept") / "s"
    return simcluster.sweep({**base, "stop": {"steps": 2}}, keys, out=folder, jobs=1, report=False)


def test_a_run_shows_its_outcome_and_its_folder(tmp_path: Path) -> None:
    run = write(tmp_path / "run")
    html = run._repr_html_()
    assert is_self_contained(html)
    assert len(html) < 5000
    for text in ("sync_ps on smolcluster", "done", "190 ms (virtual)", str(run.folder)):
        assert text in html


@pytest.mark.slow
def test_completion_of_plots_has_the_figures_alone(tmp_path: Path, swept: Sweep) -> None:
    run = write(tmp_path / "run")
    assert dir(run.plot) == sorted(["convergence", "timeline", "busy", "links", "staleness", "topology", "consensus"])
    assert repr(run.plot).startswith("figures: busy(), consensus(), convergence(")
    assert "measures" not in dir(swept.plot)
    assert "against" in dir(swept.plot)
    assert run.plot is run.plot


def test_completion_of_the_class_does_not_show_how_it_is_cached() -> None:
    for kind in (Run, Sweep):
        assert isinstance(vars(kind)["plot"], property)


def test_a_sweep_shows_its_first_points_with_units_in_the_header(swept: Sweep) -> None:
    html = swept._repr_html_()
    assert is_self_contained(html)
    assert "experiment: 4 points" in html
    assert "topology.bandwidth_bps" in html
    assert html.count("<tr") == 1 + 4


def test_a_long_sweep_says_how_many_points_it_does_not_show(swept: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    import pandas as pd

    long = SweepFolder(swept.folder, swept.name, swept.keys, 40)
    long.table = pd.concat([swept.table] * 10, ignore_index=True)
    from simcluster.lab.reports.notebook import of_sweep

    html = of_sweep(long)
    assert html.count("<tr") == 1 + MOST_ROWS
    assert "20 more points are in .table" in html


def test_a_comparison_shows_a_column_per_run_and_is_short_in_text(tmp_path: Path) -> None:
    runs = [write(tmp_path / name, seed=seed) for name, seed in (("a", 1), ("b", 2), ("c", 1))]
    found = compare(*runs)
    html = found._repr_html_()
    assert is_self_contained(html)
    assert html.count('<th scope="col"') == 4
    assert "seed: 1, now 2" in html
    assert "c against a: the same weights" in html
    assert repr(found) == f"Comparison({str(tmp_path / 'a')!r} with {str(tmp_path / 'b')!r}, {str(tmp_path / 'c')!r})"


def test_verdicts_are_a_table_and_short_in_text() -> None:
    found = Verification("edp", "quadratic", [Check("clipping", "holds", "1 < 2"), Check("loss", "fails", "<b>no</b>")])
    html = found._repr_html_()
    assert is_self_contained(html)
    assert "edp on quadratic: 1 holds, 1 fails, 0 not claimed" in html
    assert "&lt;b&gt;no&lt;/b&gt;" in html
    assert repr(found) == "Verification(edp on quadratic: 1 holds, 1 fails, 0 not claimed)"


def test_every_text_is_escaped_and_cut() -> None:
    html = card("<t>", ["<h>"], [["<c>"], ["x" * 1000]], ["<n>"])
    assert not re.search(r"<[thcn]>", html)
    assert "x" * 1000 not in html
