"""The page in a real browser: the list, its filters, comparing, a run in progress, the form, a login."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from simcluster.lab.reports.report import write_report
from simcluster.results import load_run
from simcluster.topology import load
from simcluster.web.login import Login
from tests.lab.ui.served import served, write_made_up
from tests.lab.ui.test_shelf import write_live
from tests.support.browser import needs_browser
from tests.support.devtools import Page, browser
from tests.support.looks import check_looks
from tests.support.made_up_runs import topology_document

pytestmark = [needs_browser, pytest.mark.browser]

EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture
def tab(tmp_path: Path) -> Iterator[Page]:
    with browser(tmp_path / "profile") as page:
        yield page
        # Chromium reports each answer that refuses something.
        assert [words for words in page.complaints if "status of 400" not in words] == []


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    root = tmp_path / "runs"
    write_made_up(root / "a")
    write_made_up(root / "b", seed=8, algorithm={"name": "edp"})
    write_made_up(root / "c", fail_at_step=20, name=EVIL)
    write_report(load_run(root / "a"), load(topology_document()))
    return root


def rows(tab: Page) -> list[str]:
    found: list[str] = tab.ask("[...document.querySelectorAll('td:nth-child(2)')].map((cell) => cell.textContent)")
    return sorted(found)


def choose(tab: Page, selector: str, value: str) -> None:
    place = f"document.querySelector({selector!r})"
    tab.ask(f"{place}.value = {value!r}; ['input', 'change'].map((kind) => {place}.dispatchEvent(new Event(kind)))")


def press(tab: Page, key: str, code: int, text: str = "") -> None:
    for kind in ("keyDown", "keyUp"):
        tab.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, text=text)


@pytest.mark.slow
def test_the_list_is_filtered_and_what_is_ticked_by_keyboard_is_compared(runs: Path, tab: Page) -> None:
    with served(runs) as url:
        tab.open(url + "/")
        tab.wait_for("document.querySelectorAll('td').length > 0")
        assert rows(tab) == ["a", "b", "c"]
        check_looks(tab)
        for selector, value, left in (
            ("[data-key=state]", "failed", ["c"]), ("[data-key=state]", "", ["a", "b", "c"]),
            ("[data-key=algorithm]", "edp", ["b"]), ("[data-key=algorithm]", "", ["a", "b", "c"]),
            ("[type=search]", "onerror", ["c"]), ("[type=search]", "", ["a", "b", "c"]),
        ):  # fmt: skip
            choose(tab, selector, value)
            assert rows(tab) == left, (selector, value)
        for name in ("a", "b"):
            tab.ask(f"document.querySelector('[aria-label=\"compare {name}\"]').focus()")
            press(tab, " ", 32, " ")
        tab.ask("document.querySelector('.filters button').focus()")
        press(tab, "Enter", 13, "\r")
        tab.wait_for("document.querySelectorAll('.figure .main-svg').length > 0")
        assert "algorithm.name" in tab.ask(
            "document.querySelector('[aria-label=\"settings that differ\"]').textContent"
        )
        check_looks(tab)
        tab.ask("document.querySelector('[data-value=bytes]').click()")
        tab.wait_for("document.querySelector('.figure').getAttribute('aria-label') === 'loss against bytes sent'")
        assert tab.ask("document.activeElement.dataset.value ?? 'bytes'") == "bytes"


@pytest.mark.slow
def test_a_report_opens_without_this_pages_origin_and_draws(runs: Path, tab: Page) -> None:
    with served(runs) as url:
        tab.open(url + "/files/a/report.html")
        tab.wait_for("document.documentElement.dataset.drawn === 'true'")
        assert tab.ask("window.origin") == "null"
        check_looks(tab)


@pytest.mark.slow
def test_a_failed_run_shows_its_error_and_foreign_names_as_text(runs: Path, tab: Page) -> None:
    with served(runs) as url:
        tab.open(url + "/#/run/c")
        tab.wait_for("!document.querySelector('.failure').hidden")
        assert tab.ask("document.querySelector('.pill').textContent") == "failed"
        check_looks(tab)


@pytest.mark.slow
def test_a_run_in_progress_is_drawn_again_as_it_goes_on(runs: Path, tab: Page) -> None:
    from simcluster.watching.board import TelemetryBoard
    from simcluster.watching.status import run_status
    from simcluster.watching.telling import map_of
    from tests.core.watching.test_live_file import INFO, STAR, telemetry

    board = TelemetryBoard(INFO)

    def go_on(*steps: int) -> None:
        for step in steps:
            board.add(telemetry(step))
        write_live(runs / "live", run=run_status(board) | {"map": map_of(STAR).model_dump()}, history=board.history)  # type: ignore[union-attr]

    go_on(1, 2, 3)
    with served(runs) as url:
        tab.open(url + "/#/run/live")
        tab.wait_for("document.body.innerText.includes('3 of 9')")
        assert tab.ask("document.querySelectorAll('#map .spot').length") == len(STAR.nodes)
        check_looks(tab)
        go_on(4, 5)
        tab.wait_for("document.body.innerText.includes('5 of 9')")


@pytest.mark.slow
def test_the_form_shows_what_is_wrong_and_then_the_run_until_its_end(tmp_path: Path, tab: Page) -> None:
    with served(tmp_path / "runs") as url:
        (tmp_path / "runs").mkdir(exist_ok=True)
        tab.open(url + "/#/new")
        tab.wait_for("!!document.getElementById('new-folder')")
        check_looks(tab)
        sent = "document.querySelector('form').requestSubmit()"
        choose(tab, "#new-folder", "../elsewhere")
        tab.ask(sent)
        tab.wait_for("document.querySelector('.failure').textContent.includes('expected letters')")
        choose(tab, "#new-folder", "mine")
        choose(tab, "#new-sets", "stop.steps=many")
        tab.ask(sent)
        tab.wait_for("document.querySelector('.failure').textContent.includes('stop.steps (set by --set)')")
        choose(tab, "#new-sets", "stop.steps=3\nworkload={name: quadratic}")
        tab.ask(sent)
        tab.wait_for("location.hash === '#/run/mine'")
        tab.wait_for("document.querySelector('.pill').textContent === 'done'")
        tab.wait_for("document.querySelectorAll('.figure .main-svg').length > 0")
        tab.wait_for("document.querySelector('.log').textContent.includes('3 steps')")


@pytest.mark.slow
def test_the_form_starts_a_sweep_and_leads_to_its_points_and_explorer(tmp_path: Path, tab: Page) -> None:
    with served(tmp_path / "runs") as url:
        (tmp_path / "runs").mkdir(exist_ok=True)
        tab.open(url + "/#/new")
        tab.wait_for("!!document.getElementById('new-folder')")
        hidden = "document.getElementById('new-seeds').closest('.field').hidden"
        assert tab.ask(hidden)
        tab.ask("document.querySelector('.new .choice [data-value=sweep]').click()")
        assert not tab.ask(hidden)
        assert tab.ask("document.querySelector('h1').textContent") == "New sweep"
        check_looks(tab)
        choose(tab, "#new-folder", "swept")
        choose(tab, "#new-seeds", "2")
        choose(tab, "#new-sets", "workload.learning_rat=1,2\nworkload={name: quadratic}")
        sent = "document.querySelector('form').requestSubmit()"
        tab.ask(sent)
        tab.wait_for("document.querySelector('.failure').textContent.includes('learning_rat')")
        choose(tab, "#new-sets", "stop.steps=2,3\nworkload={name: quadratic}")
        tab.ask(sent)
        tab.wait_for("location.hash === '#/run/swept'")
        tab.wait_for("document.querySelector('.pill').textContent === 'done'")
        tab.wait_for("document.body.innerText.includes('sweep, 4 points')")  # two values, two seeds
        links = "[...document.querySelectorAll('.reports a')].map((link) => link.getAttribute('href'))"
        assert tab.ask(links) == ["#/sweep/swept", "/files/swept/report.html", "/files/swept/explorer.html"]
        tab.wait_for("document.querySelector('.log').textContent.includes('table.csv')")
        check_looks(tab)


@pytest.mark.slow
def test_a_login_link_lets_this_browser_in_and_leaves_no_code_in_its_address(runs: Path, tmp_path: Path) -> None:
    codes: list[str] = []
    login = Login(codes.append)
    login.renew()
    with browser(tmp_path / "profile") as tab, served(runs, login) as url:
        tab.open(url + "/")
        tab.wait_for("document.getElementById('trouble').textContent.includes('open the link')")
        tab.open("about:blank")
        tab.open(f"{url}/#/login/{codes[0]}")
        tab.wait_for("document.querySelectorAll('td').length > 0")
        assert tab.ask("location.hash") == "#/"
        kept: Any = tab.ask("JSON.stringify([document.cookie, {...localStorage}, {...sessionStorage}])")
        assert kept == '["",{},{}]'
        assert not [asked for asked in tab.urls if codes[0] in asked and "#" not in asked]
