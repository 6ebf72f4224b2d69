"""The coordinator's page: requests that get it, what it may do, and, in a real browser, what it shows and keeps."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from simcluster_backends.sockets.coordinator.api import dashboard
from simcluster_backends.sockets.coordinator.desk import CoordinatorDesk
from simcluster_backends.sockets.coordinator.service import CoordinatorService

from simcluster.topology import load
from simcluster.watching.board import LinkTelemetry, NodeTelemetry, RunInfo, Telemetry
from simcluster.watching.telling import map_of
from tests.backends.sockets.coordinator.test_coordinator import Calls
from tests.support.browser import needs_browser
from tests.support.devtools import browser
from tests.support.looks import check_looks

TOKEN = "0123456789abcdef" * 4
NAMES = ["mini1", "mini2", "mini3", "pi5", "pi4"]
EVIL = "<img src=x onerror=alert(1)>"


def telemetry(second: int) -> Telemetry:
    """pi4 computes six times as long as the others, and pi5 is lost."""
    nodes = [
        NodeTelemetry(
            name=name, rank=rank, state="lost" if name == "pi5" else "running", step=4 * second,
            loss=2.3 / (1 + second), eval_step=second if rank == 0 else None,
            eval_loss=2.5 / (1 + second) if rank == 0 else None, eval_accuracy=0.5 if rank == 0 else None,
            staleness=float(rank), compute_s=4 * second * (0.06 if name == "pi4" else 0.01), silent_s=0.1,
            computing=rank % 2 == second % 2, waits=[f"recv(0, '{EVIL}')"], bytes_sent=4_000_000 * second * (rank + 1),
            reason="its process is gone" if name == "pi5" else "",
            rss_bytes=3e8, cpu_percent=97.0, machine_cpu_percent=60.0, machine_memory_percent=40.0, temperature_C=55.0,
        )
        for rank, name in enumerate(NAMES)
    ]  # fmt: skip
    links = [
        LinkTelemetry(name=link.name, bytes_forward=round(link.bandwidth_Bps * share * second), bytes_backward=0,
                      capacity_Bps=link.bandwidth_Bps)
        for link, share in zip(load("smolcluster").links, (0.02, 0.3, 0.6, 0.95), strict=False)
    ]  # fmt: skip
    return Telemetry(elapsed_s=float(second), nodes=nodes, links=links)


def a_desk(seconds: int = 30) -> CoordinatorDesk:
    desk = CoordinatorDesk(600.0, time.monotonic)  # no launcher speaks here, and a browser may be slow
    run = RunInfo(name="quickstart", nodes=NAMES, rendezvous="127.0.0.1:1", algorithm="edp", topology="smolcluster",
                  steps=200, map=map_of(load("smolcluster")), config=f"name: {EVIL}\n",
                  folder="/home/pi/runs/one")  # fmt: skip
    desk.begin(run)
    for second in range(seconds):
        desk.telemetry(telemetry(second))
    return desk


@pytest.fixture
def served() -> Iterator[tuple[CoordinatorService, CoordinatorDesk]]:
    desk = a_desk()
    service = CoordinatorService("127.0.0.1:0", TOKEN, desk)
    service.start()
    yield service, desk
    service.close()


def test_the_page_needs_no_token_but_the_right_host_and_nothing_else_is_open() -> None:
    calls = Calls()
    answer = calls("GET", "/", Authorization="")
    assert answer.status_code == 200
    assert answer.content == dashboard().content
    assert calls("GET", "/", Authorization="", Host="evil.example").status_code == 421
    for method, path in (("POST", "/"), ("OPTIONS", "/"), ("GET", "/status"), ("GET", "/page")):
        assert calls(method, path, Authorization="").status_code == 401, (method, path)


def test_the_page_may_ask_this_service_and_nobody_else_and_be_framed_by_nobody() -> None:
    policy = dashboard().headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "connect-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    text = dashboard().content.decode()
    assert "/*S" not in text
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in text
    assert "localStorage" not in text
    assert "sessionStorage" not in text


@pytest.mark.slow
@needs_browser
@pytest.mark.browser
def test_a_browser_on_loopback_shows_the_run_without_a_login_and_keeps_nothing(
    served: tuple[CoordinatorService, CoordinatorDesk], tmp_path: Path
) -> None:
    service, desk = served
    with browser(tmp_path) as tab:
        tab.look(1200, dark=False)
        tab.open(service.url + "/")
        tab.wait_for("!document.getElementById('board').hidden")
        text = tab.ask("document.body.innerText")
        for words in ("quickstart", "running", "116 of 200", "pi4 computes 6.0 times as long", "pi5 is lost", "95 %"):
            assert words in text, words
        assert EVIL in text  # as text
        assert tab.ask("document.querySelectorAll('#charts figure path.curve').length") == 6
        assert tab.ask("document.querySelectorAll('#map rect.spot').length") == len(load("smolcluster").nodes)
        assert tab.ask("document.querySelectorAll('#map .busy4').length") == 1
        assert tab.ask("document.querySelectorAll('#timeline rect').length") >= 5
        desk.telemetry(telemetry(31))
        tab.wait_for("document.body.innerText.includes('124 of 200')")
        for width, dark in ((1200, True), (390, False), (390, True)):
            tab.look(width, dark=dark)
            tab.ask("new Promise(done => setTimeout(done, 50))")
            assert tab.ask("document.documentElement.scrollWidth") <= width
        assert tab.ask("document.getElementById('experiment').textContent") == f"name: {EVIL}\n"
        tab.ask("document.getElementById('config').open = true")
        assert "/home/pi/runs/one" in tab.ask("document.getElementById('folder').textContent")
        assert tab.ask("document.getElementById('report').hidden")
        check_looks(tab)
        desk.end("rank 3 (pi5) is lost")
        tab.wait_for("document.getElementById('state').textContent === 'failed'")
        assert "rank 3 (pi5) is lost" in tab.ask("document.getElementById('trouble').textContent")
        desk.take_report("<body><script>document.body.textContent = window.origin</script>")
        tab.wait_for("!document.getElementById('report').hidden")
        check_looks(tab)
        assert tab.ask("JSON.stringify([{...localStorage}, document.cookie])") == '[{},""]'
        tab.ask("document.getElementById('report').target = '_self'; document.getElementById('report').click()")
        tab.wait_for("location.pathname === '/report' && document.body?.textContent === 'null'")
        assert tab.complaints == []
        assert not [url for url in tab.urls if not url.startswith((service.url, "data:"))]


@pytest.mark.slow
@needs_browser
@pytest.mark.browser
def test_a_page_draws_no_axis_before_the_first_step_and_boxes_that_hold_their_steps(
    served: tuple[CoordinatorService, CoordinatorDesk], tmp_path: Path
) -> None:
    service, desk = served
    first = telemetry(0)
    desk.begin(RunInfo(name="next", nodes=NAMES, steps=9999, map=map_of(load("smolcluster"))))
    for _ in range(3):
        desk.telemetry(first)
    with browser(tmp_path) as tab:
        tab.look(1200, dark=False)
        tab.open(service.url + "/")
        tab.wait_for("!document.getElementById('board').hidden")
        assert tab.ask("document.querySelectorAll('#charts figure').length") == 0
        absent = [node.model_copy(update={"state": "expected"}) for node in first.nodes[:2]]
        desk.telemetry(first.model_copy(update={"nodes": [*absent, *first.nodes[2:]]}))
        names = ", ".join(node.name for node in absent)
        tab.wait_for(f"document.getElementById('trouble').textContent.startsWith('Waiting for {names}. ')")
        assert "simcluster node NAME --coordinator 127.0.0.1" in tab.ask(
            "document.getElementById('trouble').textContent"
        )
        nodes = [node.model_copy(update={"step": 215_300}) for node in first.nodes]
        desk.telemetry(first.model_copy(update={"elapsed_s": 1.0, "nodes": nodes}))
        tab.wait_for("document.querySelectorAll('#charts figure').length > 0")
        room = "(box, text) => box.left + 3 < text.left && text.right < box.right - 3"
        fits = f"""[...document.querySelectorAll('#map rect.spot')].every((box) => {{
            const next = [box.nextElementSibling, box.nextElementSibling.nextElementSibling];
            return next.filter((text) => text && text.tagName === 'text').every((text) =>
                ({room})(box.getBoundingClientRect(), text.getBoundingClientRect())); }})"""
        assert tab.ask(fits)


@pytest.mark.slow
@needs_browser
@pytest.mark.browser
def test_a_browser_enters_by_a_link_that_works_once_and_stays_when_the_page_is_loaded_again(tmp_path: Path) -> None:
    lines: list[str] = []
    service = CoordinatorService("127.0.0.1:0", TOKEN, a_desk(), told=lines.append, login=True)
    service.start()
    service.invite()
    try:
        with browser(tmp_path) as tab:
            tab.look(390, dark=True)
            tab.open(service.url + "/")
            tab.wait_for("!document.getElementById('ask').hidden")
            assert tab.ask("document.getElementById('board').hidden")
            link = lines[0].rpartition(" ")[2]
            tab.ask(f"location.href = {link!r}")  # the same page with another fragment
            tab.wait_for("!document.getElementById('board').hidden")
            assert tab.ask("document.getElementById('ask').hidden")
            assert tab.ask("[location.hash, document.cookie]") == ["#/", ""]
            tab.open("about:blank")
            tab.open(service.url + "/")
            tab.wait_for("!document.getElementById('board').hidden")
        with browser(tmp_path / "another") as tab:
            tab.open(link)
            tab.wait_for("!document.getElementById('ask').hidden")
            assert "was used before" in tab.ask("document.getElementById('trouble').textContent")
        assert len(lines) == 2  # the next browser's link
    finally:
        service.close()
