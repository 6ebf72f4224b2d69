"""The report of a run on many nodes: sums, distributions and those that stand out, on few screens and in few bytes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from simcluster.lab.reports.report import render
from simcluster.lab.reports.sections.spread import distributions, standing_out
from simcluster.results import Run
from simcluster.runs import words
from simcluster.runs.write import write_run
from simcluster.topology import load
from tests.lab.reports.test_report import without_plotly
from tests.support.browser import needs_browser
from tests.support.devtools import browser
from tests.support.looks import check_looks
from tests.support.made_up_runs import made_up_config, made_up_run, star_document

NODES = 1024


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    document = star_document(NODES)
    record = made_up_run(steps=10, names=list(document["nodes"]))
    record.extra["lost"] = {"n700": "silent for 5 s"}
    folder = tmp_path_factory.mktemp("run")
    run = Run(write_run(folder, made_up_config(topology=document), load(document), record, "0.1.0"))
    return render(run, load(document))


@pytest.mark.slow
def test_groups_are_by_site_and_device_and_those_that_stand_out_have_names(page: str) -> None:
    text = without_plotly(page)
    nodes = text[text.index("<h2>Nodes") : text.index("<h2>Repeat")]
    # Three minis compute 10 ms of each step, the others 30 ms; a step takes 38 ms.
    found = re.findall(
        r"<td class=text>(north|south)</td><td class=text>([\w-]+)</td><td>([\d,]+)</td><td>([^<]*)</td>", nodes
    )
    assert found == [
        ("south", "raspberry-pi-5", "512", "79 %"),
        ("north", "raspberry-pi-5", "509", "79 %"),
        ("north", "mac-mini-m4", "3", "26 %"),
    ]
    assert "Of 1,024 nodes: up to 8 that computed longest, and 3 at the median." in nodes
    assert 'n700 <span class="lost">lost</span></td><td class=text>lost<' in nodes
    assert nodes.count("typical") == 3
    assert "<svg" in nodes, "the distribution of computing"


def test_the_worst_are_those_that_differ_from_the_median() -> None:
    rows = {f"n{index}": {"busy": 5.0 if index == 9 else 1.0} for index in range(65)}
    assert standing_out(rows, "busy")["n9"] == "most"
    assert list(standing_out(rows, "busy").values()) == ["most", "typical", "typical", "typical"]
    assert list(standing_out(dict(list(rows.items())[:64]), "busy")) == [f"n{index}" for index in range(64)]


def test_a_distribution_counts_every_value_and_shows_a_single_one() -> None:
    """1,023 of one and one of 1,000, in logarithmic steps: two bars, of which the second is as high as can be seen."""
    drawn = distributions({"sent": ([1.0] * 1023 + [1000.0], words.number), "same": ([2.0, 2.0], words.number)})
    assert re.findall(r'<rect x="(\d+)" width="5" y="[\d.]+" height="([\d.]+)"/>', drawn) == [
        ("0", "56.0"),
        ("234", "2.0"),
    ]
    assert "median 1, logarithmic" in drawn
    assert "same" not in drawn


@pytest.mark.slow
def test_a_report_of_1024_nodes_is_small(page: str) -> None:
    assert len(without_plotly(page).encode()) < 1_500_000


@pytest.mark.slow
@pytest.mark.browser
@needs_browser
def test_a_report_of_1024_nodes_is_six_screens_high_and_shows_every_node_on_a_page(page: str, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text(page, encoding="utf-8")
    with browser(tmp_path / "profile") as tab:
        tab.look(1280, dark=False, height=800)
        tab.open((tmp_path / "report.html").as_uri())
        tab.wait_for("document.documentElement.dataset.drawn === 'true' && !!document.documentElement.dataset.spans")
        assert tab.ask("document.documentElement.scrollHeight") <= 6 * 800
        pagers = "[...document.querySelectorAll('.pager span')].map((one) => one.textContent)"
        assert tab.ask(pagers) == ["nodes 1 to 16 of 1,024", "nodes 1 to 70 of 1,024"]
        tab.ask("document.querySelector('#busy + .pager .later').click()")
        assert tab.ask(pagers)[1] == "nodes 71 to 140 of 1,024"
        find = "document.getElementById('node-name')"
        tab.ask(f"{find}.value = 'n102'; {find}.dispatchEvent(new Event('input'))")
        assert tab.ask(pagers)[0] == "nodes 1 to 5 of 5", "n102 and n1020 to n1023"
        check_looks(tab)
        assert tab.complaints == []
