"""report.html: self-contained, escaped, honest about failure; and, where there is a browser, drawn."""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from pathlib import Path
from typing import Any

import pytest

from simcluster.errors import RunError
from simcluster.lab.reports.report import render
from simcluster.lab.reports.report_tables import carried, dominated, headline
from simcluster.results import Run
from simcluster.runs.record import NodeRecord, RunRecord, Span
from simcluster.runs.write import write_run
from simcluster.topology import Topology, load
from tests.support.browser import needs_browser
from tests.support.devtools import browser
from tests.support.looks import check_looks
from tests.support.made_up_runs import made_up_config, made_up_run, topology_document, two_nodes

TOPOLOGY = load(topology_document())


def write(folder: Path, record: RunRecord, topology: Topology = TOPOLOGY, **config: Any) -> Run:
    return Run(write_run(folder, made_up_config(**config), topology, record, "0.1.0"))


def without_plotly(page: str) -> str:
    """The page less the 2 MB of plotly.js."""
    return re.sub(r'<script type="text/plain" id="plotly">.*?</script>', "", page, count=1)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    return render(write(tmp_path_factory.mktemp("run"), made_up_run(staleness=True)), TOPOLOGY)


@pytest.fixture(scope="module")
def failed_page(tmp_path_factory: pytest.TempPathFactory) -> str:
    return render(write(tmp_path_factory.mktemp("run"), made_up_run(fail_at_step=20)), TOPOLOGY)


def test_the_headline_says_who_trained_what_where_how_well_and_in_what_time(tmp_path: Path) -> None:
    run = write(tmp_path, made_up_run())
    assert headline(run, TOPOLOGY) == (
        "sync_ps trained digits-mlp on 5 nodes of smolcluster (3 mac-mini-m4, 1 raspberry-pi-5 and "
        "1 raspberry-pi-4) and reached 97.5 % accuracy after 50 steps and 1.90 s of virtual time."
    )


def test_a_failed_run_says_so_before_anything_else(failed_page: str) -> None:
    text = without_plotly(failed_page)
    assert "and failed after 19 steps and 722 ms of virtual time." in text
    alert = text.index("This run failed: PeerLost")
    assert "rank 4 (pi4) is lost: no heartbeat for 5 s" in text[alert : alert + 200]
    assert alert < text.index('class="cards"')


def test_a_run_that_did_not_fail_has_no_word_of_failure(page: str) -> None:
    body = without_plotly(page).split("<body>")[1]
    assert "failed" not in body


def test_nodes_that_a_run_has_lost_are_named(tmp_path: Path) -> None:
    record = made_up_run()
    record.extra["lost"] = {"pi5": "crashed by the fault plan", "pi4": "silent for 5 s"}
    text = without_plotly(render(write(tmp_path / "a", record), TOPOLOGY))
    assert "Lost on the way: pi5 (crashed by the fault plan) and pi4 (silent for 5 s)." in text
    assert text.count('<span class="lost">') == 2
    # An error that tells it is enough.
    failed = made_up_run(fail_at_step=20)
    failed.extra["lost"] = {"pi4": "no heartbeat for 5 s"}
    assert "Lost on the way" not in render(write(tmp_path / "b", failed), TOPOLOGY)


def test_a_column_of_which_nothing_is_known_is_left_out(failed_page: str, page: str) -> None:
    assert '<th scope="col">weights</th>' in page
    assert '<th scope="col">weights</th>' not in failed_page
    nodes = re.findall(r"<tr>(.*?)</tr>", without_plotly(failed_page).split("<h2>Nodes</h2>")[1].split("</table>")[0])
    assert {row.count("<td") for row in nodes[1:]} == {nodes[0].count("<th")}  # no cell without a head


def test_a_run_on_sockets_is_not_said_to_have_used_the_topologys_devices_and_links(tmp_path: Path) -> None:
    summary = two_node_summary((1.0, 2.0), 8_000_000, tmp_path / "a")
    sentence = dominated({**summary, "backend": "sockets"}, load(two_nodes()))
    assert sentence.startswith("Waiting dominated: devices worked 15 % of the time on average; the topology's a-b")
    run = write(tmp_path / "b", made_up_run(), backend="sockets")
    assert "on 5 nodes of smolcluster and reached" in headline(run, TOPOLOGY)
    assert "Devices and what they consume are the topology&#x27;s" in render(run, TOPOLOGY)


def test_a_run_in_which_nothing_took_time_has_no_empty_figures(tmp_path: Path) -> None:
    nodes = [NodeRecord(rank, name, finished_s=0.0) for rank, name in enumerate("ab")]
    page = render(write(tmp_path, RunRecord(nodes, 0.0, 0.1), load(two_nodes())), load(two_nodes()))
    assert "Nothing took any time." in page
    assert "Where the time went" not in page


def two_node_summary(compute_s: tuple[float, float], sent_bytes: int, tmp_path: Path) -> dict[str, Any]:
    """Two nodes over 1 MB/s for 10 s."""
    nodes = [NodeRecord(rank, name, finished_s=10.0) for rank, name in enumerate("ab")]
    for node, worked_s in zip(nodes, compute_s, strict=True):
        node.spans = [worked(worked_s)]
    nodes[0].sent_to[1] = [1, sent_bytes]
    return write(tmp_path, RunRecord(nodes, 10.0, 0.1), load(two_nodes())).summary


def worked(worked_s: float) -> Span:
    return Span("compute", 0.0, worked_s, -1, "", 0)


@pytest.mark.parametrize(
    ("compute_s", "sent_bytes", "sentence"),
    [
        ((9.0, 7.0), 1_000_000, "Computing dominated: devices worked 80 % of the time on average"),
        ((1.0, 9.0), 1_000_000, "Waiting for b dominated: it computed 90 % of the time"),
        (
            (1.0, 2.0),
            8_000_000,
            "Communication dominated: the busiest link, a-b, was in use 80 % of the time",
        ),
        ((1.0, 2.0), 1_000_000, "Waiting dominated: devices worked 15 % of the time on average"),
    ],
)
def test_the_second_sentence_names_what_the_time_went_to(
    tmp_path: Path, compute_s: tuple[float, float], sent_bytes: int, sentence: str
) -> None:
    summary = two_node_summary(compute_s, sent_bytes, tmp_path)
    assert dominated(summary, load(two_nodes())).startswith(sentence)


def test_a_link_that_is_busy_one_way_after_the_other_dominates_too(tmp_path: Path) -> None:
    """4 MB each way over 1 MB/s: 4 of 10 s one way, then 4 s back."""
    nodes = [NodeRecord(0, "a", sent_to={1: [1, 4_000_000]}), NodeRecord(1, "b", sent_to={0: [1, 4_000_000]})]
    summary = write(tmp_path, RunRecord(nodes, 10.0, 0.1), load(two_nodes())).summary
    use = "the busiest link, a-b, was in use 40 % of the time (80 % with both ways added)"
    assert dominated(summary, load(two_nodes())).startswith(f"Communication dominated: {use}")


def test_a_link_above_100_percent_says_that_headers_count(tmp_path: Path) -> None:
    """In the simulator a header takes no time: 12 MB over 1 MB/s in 10 s are mostly headers."""
    summary = two_node_summary((1.0, 2.0), 12_000_000, tmp_path)
    told = "in use 120 % of the time (headers of messages count, but take no time)"
    assert told in dominated(summary, load(two_nodes()))
    assert carried(summary).endswith(
        "Headers of messages count, but take no time, so small messages can fill more than 100 %."
    )
    assert "eader" not in carried(two_node_summary((1.0, 2.0), 8_000_000, tmp_path / "less"))


def test_no_text_of_the_run_becomes_markup(tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"
    document = two_nodes()
    record = RunRecord([NodeRecord(0, "a"), NodeRecord(1, "b")], 1.0, 0.1, error=RunError(evil))
    record.nodes[0].spans = [worked(0.5)._replace(tag=evil)]
    run = write(
        tmp_path,
        record,
        load(document),
        name=evil,
        algorithm={"path": evil},
        workload={"name": evil},
        seed=3,
    )
    text = without_plotly(render(run, load(document)))
    assert "<script>alert" not in text
    assert "<img" not in text
    # eight scripts, the JSON of the figures and of the timeline, and its spans; plotly.js is left out
    assert text.count("<script") == 11


def test_the_page_fetches_nothing_and_runs_only_its_own_scripts(page: str) -> None:
    assert not re.search(r'(src|href)="?(https?:)?//', without_plotly(page))
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    scripts = re.findall(r"<script>(.*?)</script>", page, flags=re.S)
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    packed = re.search(r'<script type="text/plain" id="plotly">(.*?)</script>', page)
    assert packed is not None
    plotly = gzip.decompress(base64.b64decode(packed[1]))
    hashes.append(base64.b64encode(hashlib.sha256(plotly).digest()).decode())
    assert policy[1].startswith("default-src &#x27;none&#x27;;")
    assert re.findall(r"sha256-([^&]*)", policy[1]) == hashes


def test_the_page_says_how_to_repeat_the_run(tmp_path: Path) -> None:
    text = without_plotly(render(write(tmp_path / "my run", made_up_run()), TOPOLOGY))
    assert "simcluster run &#x27;my run/config.yaml&#x27;" in text
    assert "Seed 7; simcluster 0.1.0, python 3." in text
    assert "pull_interval: 1" in text


def test_every_node_and_link_has_its_row(page: str) -> None:
    text = without_plotly(page)
    for name in [*TOPOLOGY.workers, *(link.name for link in TOPOLOGY.links)]:
        assert re.search(rf"<tr>(<td>\d+</td>)?<td class=text>{name}</td>", text), name


@pytest.mark.slow
@pytest.mark.browser
@needs_browser
def test_curves_are_smoothed_and_every_figure_gives_its_numbers_and_picture(page: str, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text(page, encoding="utf-8")
    with browser(tmp_path / "profile") as tab:
        tab.look(390, dark=True)
        tab.open((tmp_path / "report.html").as_uri())
        tab.wait_for("document.documentElement.dataset.drawn === 'true'")
        # 0.5 of 1; then (0.25 + 0.5 * 3) / 0.75; a gap stays one
        assert tab.ask("smoothed([1, 3, null], 0.5)") == [1, pytest.approx(7 / 3), None]
        tab.ask("window.loss = document.querySelector('[data-stem=loss]'); window.before = loss.data.length")
        tab.ask("""for (const [kind, value] of [['range', 0.9], ['checkbox', true]]) {
            const input = document.querySelector(`.curve-tools [type=${kind}]`);
            if (kind === 'range') input.value = value; else input.checked = value;
            input.dispatchEvent(new Event('input')); }""")
        assert tab.ask("loss.data.length === 2 * before && loss.layout.yaxis.type") == "log"
        assert tab.ask("document.querySelector('.curve-tools output').textContent") == "0.90"
        tab.ask("URL.createObjectURL = (blob) => { window.kept = blob; return '#'; }")
        tools = "document.querySelectorAll('.tools')"
        assert tab.ask("document.querySelectorAll('[data-figure] + .tools').length") == 3
        tab.ask(f"{tools}[0].children[1].click()")
        rows = tab.ask("kept.text()").splitlines()
        assert rows[0] == "name,x,y"
        numbers = [row.rsplit(",", 1)[1] for row in rows[1:]]
        assert [float(number) for number in numbers] == tab.ask(
            "figures['loss-time'].data.flatMap((t) => [...decoded(t.y)])"
        )
        tab.ask(f"{tools}[0].children[0].click()")
        tab.wait_for("kept.type === 'image/svg+xml'")
        assert tab.ask("kept.text()").startswith("<svg")
        assert tab.ask("document.documentElement.scrollWidth") <= 390
        assert tab.complaints == []


@pytest.mark.slow
@pytest.mark.browser
@needs_browser
def test_a_failed_run_fits_a_narrow_screen(failed_page: str, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text(failed_page, encoding="utf-8")
    with browser(tmp_path / "profile") as tab:
        tab.open((tmp_path / "report.html").as_uri())
        tab.wait_for("document.documentElement.dataset.drawn === 'true'")
        check_looks(tab)
        assert tab.complaints == []


@pytest.mark.slow
@pytest.mark.browser
@needs_browser
def test_a_browser_that_cannot_inflate_says_so_in_place_of_each_figure(page: str, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text(page, encoding="utf-8")
    with browser(tmp_path / "profile") as tab:
        tab.call("Page.addScriptToEvaluateOnNewDocument", source="delete window.DecompressionStream")
        tab.open((tmp_path / "report.html").as_uri())
        tab.wait_for("document.documentElement.dataset.drawn === 'false'")
        places = "[...document.querySelectorAll('[data-figure], .spans')]"
        assert tab.ask(f"{places}.length") == 5
        assert tab.ask(f"{places}.every((place) => place.textContent.includes('newer browser: Chrome or Edge 80'))")
        assert tab.complaints == []
