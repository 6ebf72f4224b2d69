"""explorer.html: what the scripts are given, and, in a real browser, that it draws what the reader asks for."""

from __future__ import annotations

import base64
import gzip
import json
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from simcluster.lab.reports.sweeps.explorer import render
from tests.support.browser import needs_browser
from tests.support.devtools import Page, browser
from tests.support.looks import check_looks

EVIL = "</script><img src=x onerror=document.title='owned'>"
KEYS = ["algorithm.k", "topology.links.a-b.bandwidth"]
BANDWIDTHS = ["10 Mbps", "1 Gbps"]


def table(keys: list[str] = KEYS, evil: str = "") -> pd.DataFrame:
    """Two keys, two seeds: elapsed_s is 10 k + seed, and ten times that on 10 Mbps; point 7 has failed."""
    rows: list[dict[str, Any]] = []
    for k in (1, 2, 4):
        for bandwidth in BANDWIDTHS:
            for seed in (0, 1):
                slow = 10 if bandwidth == "10 Mbps" else 1
                rows.append(
                    {
                        "point": len(rows),
                        "seed": seed,
                        keys[0]: k,
                        keys[1]: bandwidth,
                        "status": "done",
                        "elapsed_s": (10.0 * k + seed) * slow,
                        "accuracy": None,
                        "bytes_sent": 100 + len(rows),
                        "error": None,
                        "run": f"run{len(rows)}",
                    }
                )
    rows[7] |= {"status": "failed", "elapsed_s": None, "error": f"PeerLost: rank 1 is lost {evil}"}
    return pd.DataFrame(rows)


def page(frame: pd.DataFrame, keys: list[str] = KEYS, name: str = "swept", reports: set[int] | None = None) -> str:
    configs = [
        None if row["status"] != "done" else {"name": name, "seed": row["seed"], "stop": {"steps": 5}}
        for _, row in frame.iterrows()
    ]
    return render(name, frame, keys, [number in (reports or set()) for number in range(len(frame))], configs)


def unpacked(text: str, name: str) -> bytes:
    found = re.search(rf'<script type="text/plain" id="{name}">(.*?)</script>', text)
    assert found is not None
    return gzip.decompress(base64.b64decode(found[1]))


def given(text: str) -> dict[str, Any]:
    """What the page is given, with each column's numbers (NaN as None) and words in place of arrays."""
    data: dict[str, Any] = json.loads(unpacked(text, "data"))
    content, rows = unpacked(text, "columns"), data["rows"]
    at = 0

    def take(kind: Any) -> list[Any]:
        nonlocal at
        found = np.frombuffer(content, kind, rows, at)
        at += found.nbytes
        return found.tolist()

    for column in data["columns"]:
        if column["is_number"]:
            column["values"] = [None if math.isnan(value) else value for value in take(np.float64)]
    for column in (*data["columns"], *data["own"]):
        if column["words"] is not None:
            column["labels"] = [column["words"][code - 1] if code else None for code in take(np.uint32)]
    data["known"], data["reports"] = take(np.uint8), take(np.uint8)
    assert at == len(content)
    return data


def test_the_scripts_are_given_numbers_with_their_units_and_words() -> None:
    data = given(page(table()))
    columns = {column["name"]: column for column in data["columns"]}
    assert "accuracy" not in columns, "it says nothing"
    assert columns[KEYS[1]]["values"][:3] == [10, 10, 1000]
    assert columns[KEYS[1]]["labels"][:3] == ["10 Mbps", "10 Mbps", "1 Gbps"]
    assert columns[KEYS[1]]["log"]
    assert columns[KEYS[1]]["title"].endswith("bandwidth (Mbps)")
    assert columns["elapsed_s"]["values"][7] is None
    assert "values" not in columns["status"]
    assert data["start"] == {"x": KEYS[1], "y": "elapsed_s", "colour": KEYS[0]}


def test_what_points_share_is_told_once() -> None:
    data = given(page(table()))
    assert data["common"] == ["name: swept", "stop.steps: 5"]
    (own,) = data["own"]
    assert (own["name"], own["labels"]) == ("seed", ["0", "1", "0", "1", "0", "1", "0", None, "0", "1", "0", "1"])
    assert data["known"] == [number != 7 for number in range(12)]


def test_no_name_of_a_sweep_becomes_markup() -> None:
    text = page(table([f"a.{EVIL}", KEYS[1]], EVIL), [f"a.{EVIL}", KEYS[1]], name=EVIL)
    assert "<img" not in re.sub(r"<script>/\*.*?</script>", "", text, count=1, flags=re.S)
    assert given(text)["name"] == EVIL


@contextmanager
def opened(text: str, tmp_path: Path, address: str = "", width: int = 1200) -> Iterator[Page]:
    (tmp_path / "explorer.html").write_text(text, encoding="utf-8")
    with browser(tmp_path / "profile") as tab:
        tab.look(width, dark=False)
        tab.open((tmp_path / "explorer.html").as_uri() + address)
        tab.wait_for("document.documentElement.dataset.drawn === 'true'")
        yield tab
        assert tab.complaints == []


ROWS = "[...document.querySelectorAll('#rows button')].map((one) => one.textContent)"
PARTS = """figure.parts.map(([name, , list]) => {
  const marks = [...list].sort((a, b) => figure.marks.x[a] - figure.marks.x[b]), { x, y, high, low } = figure.marks;
  const values = [(mark) => x[mark], (mark) => y[mark], (mark) => (high[mark] - low[mark]) / 2];
  return [name, ...values.map((value) => marks.map(value))];
})"""
"""What the figure has: name, x, y and half the spread over seeds of each part."""


def pick(tab: Page, name: str, value: str) -> None:
    tab.ask(f"at({name!r}).value = {json.dumps(value)}; at({name!r}).dispatchEvent(new Event('change'))")


def drag(tab: Page, canvas: str, start: tuple[float, float], end: tuple[float, float]) -> None:
    """Drag on the element *canvas*, from one place of it to another, in its pixels."""
    script = f"document.querySelector({canvas!r})"
    tab.ask(f"{script}.scrollIntoView()")
    left, top = tab.ask(f"[{script}.getBoundingClientRect().left, {script}.getBoundingClientRect().top]")
    for kind, (x, y), buttons in (("mousePressed", start, 1), ("mouseMoved", end, 1), ("mouseReleased", end, 0)):
        tab.call(
            "Input.dispatchMouseEvent", type=kind, x=left + x, y=top + y, button="left", buttons=buttons, clickCount=1
        )


@pytest.mark.slow
@needs_browser
@pytest.mark.browser
def test_the_address_chooses_what_a_browser_draws(tmp_path: Path) -> None:
    # k of 2 and 4 without the failed point: 7 points, of which those above 25 s:
    # k=2: 200 and 210 on 10 Mbps, 20 on 1 Gbps (too few); k=4: 400, 410, 40, 41
    address = "#x=elapsed_s&colour=&seeds=each&is.algorithm.k=2&is.algorithm.k=4&is.status=done&min.elapsed_s=25"
    with opened(page(table()), tmp_path, address) as tab:
        assert tab.ask("at('status').textContent") == "6 of 12 points; all drawn."
        assert tab.ask("figure.xs.length") == 6
        assert tab.ask(ROWS) == ["4", "5", "8", "9", "10", "11"]


@pytest.mark.slow
@needs_browser
@pytest.mark.browser
def test_controls_clicks_and_hostile_names_in_a_narrow_browser(tmp_path: Path) -> None:
    keys = [f"a.{EVIL}", KEYS[1]]
    with opened(page(table(keys, EVIL), keys, EVIL, {3}), tmp_path, width=500) as tab:
        assert tab.ask("document.title") == f"{EVIL}, explored"
        # Means over two seeds: (10 + 11) / 2, and ten times that; of k = 2 on 1 Gbps one seed is left.
        assert tab.ask(PARTS) == [
            ["1", [10, 1000], [105, 10.5], [5, 0.5]],
            ["2", [10, 1000], [205, 20], [5, 0]],
            ["4", [10, 1000], [405, 40.5], [5, 0.5]],
        ]
        pick(tab, "colour", "elapsed_s")
        pick(tab, "x", "seed")
        # Of each key the seeds stay apart. 410 and 10 are wide: logarithms.
        times_s = sorted([100, 10, 200, 20, 400, 40, 110, 11, 210, 410, 41])
        assert sorted(tab.ask("[...figure.marks.shown].map((mark) => figure.marks.colour[mark])")) == times_s
        assert tab.ask("figure.colours.log")
        pick(tab, "colour", keys[0])
        pick(tab, "x", keys[1])
        tab.ask("at('seeds').lastElementChild.click()")
        assert [len(part[1]) for part in tab.ask(PARTS)] == [4, 3, 4]
        pick(tab, "x", "status")
        pick(tab, "colour", "")
        assert len(tab.ask(PARTS)[0][1]) == 11, "the failed point has no time to draw"
        pick(tab, "y", "bytes_sent")
        assert tab.ask(
            "[...figure.marks.shown].filter((mark) => figure.marks.failed[mark]).map((mark) => figure.marks.y[mark])"
        ) == [107]
        assert tab.ask("at('status').textContent") == "12 of 12 points; all drawn; crosses are of runs that failed."
        assert tab.ask("location.hash") == "#x=status&y=bytes_sent&colour=&seeds=each"
        tab.ask("document.querySelector('#rows tr:nth-child(4) button').click()")
        assert tab.ask("document.querySelector('#detail h2').textContent") == "Point 3 done"
        assert tab.ask("at('report').getAttribute('href')") == "points/run3/report.html"
        assert tab.ask("document.activeElement.id") == "detail"
        tab.ask("choose(7)")
        assert "PeerLost" in tab.ask("at('detail').textContent")
        assert "This point left no run." in tab.ask("at('detail').textContent")
        assert EVIL in tab.ask("at('errors').textContent")
        assert tab.ask("document.images.length") == 0
        check_looks(tab)


@pytest.mark.slow
@needs_browser
@pytest.mark.browser
def test_a_drag_keeps_a_rectangle_of_points_or_a_range_of_an_axis(tmp_path: Path) -> None:
    with opened(page(table()), tmp_path, "#seeds=each") as tab:
        # 1 Gbps stands in the right half, and there all but those of k = 4 take less than 30 s.
        left, wide, high = tab.ask("[figure.left, figure.wide, figure.high]")
        middle = tab.ask("(1 - figure.scales[1].where(30)) * figure.high + 12")
        drag(tab, "#figure canvas", (left + wide / 2, middle), (left + wide, 12 + high))
        assert tab.ask(ROWS) == ["2", "3", "6"]
        assert "min.topology.links.a-b.bandwidth=" in tab.ask("location.hash")
        tab.ask("at('clear').click()")
        # The axes are those of the two keys and of the time; the first is k, from 1 to 4: its upper half is k = 4.
        at, high = tab.ask("[lines.at[0], lines.high]")
        drag(tab, "#lines canvas", (at, 30), (at, 30 + high / 2))
        assert tab.ask(ROWS) == ["8", "9", "10", "11"]
        assert tab.ask("at('lines-status').textContent") == "A line for each of 4 points."
        tab.ask("document.querySelector('#lines canvas').dispatchEvent(new MouseEvent('dblclick'))")
        assert len(tab.ask(ROWS)) == 12


@pytest.mark.slow
@needs_browser
@pytest.mark.browser
def test_importance_is_the_adjusted_share_of_variance_by_setting(tmp_path: Path) -> None:
    """Four times on a linear axis: a alone decides, 1 and 1.2 against 3 and 3.2, with b adding 0.2.

    The mean is 2.1, SS_total = 2 (1.1^2 + 0.9^2) = 4.04. Between a: 4 x 1^2 = 4, within 0.04 / 2 = 0.02, so
    (4 - 0.02) / 4.04 = 0.985. Between b: 4 x 0.1^2 = 0.04, within 4 / 2 = 2: less than chance, so 0.
    """
    frame = pd.DataFrame(
        {"point": range(4), "seed": 0, "a": [1, 1, 2, 2], "b": ["x", "y", "x", "y"], "status": "done"}
        | {"elapsed_s": [1.0, 1.2, 3.0, 3.2], "run": list("abcd")}
    )
    with opened(page(frame, ["a", "b"]), tmp_path) as tab:
        found = tab.ask("importance(state, rows)[0].map(([column, share]) => [column.name, share])")
        assert found == [["a", pytest.approx(3.98 / 4.04)], ["b", 0]]
        assert tab.ask("at('importance').textContent") == "a99 %b0.0 %"
        assert "over the 4 points shown" in tab.ask("at('method').textContent")
        # Of ten parts of equal size: 0 to 99, a tenth each.
        assert tab.ask(
            "[...partsOfColumn({ values: Float64Array.from({ length: rowCount }, (_, row) => row) }, rows)[0]]"
        ) == [0, 1, 2, 3]


@pytest.mark.slow
@needs_browser
@pytest.mark.browser
def test_five_thousand_points_open(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {
            "point": range(5000),
            "seed": 0,
            "k": [0.001 * number for number in range(5000)],
            "status": "done",
            "elapsed_s": [float(number % 97) for number in range(5000)],
            "run": "one",
        }
    )
    with opened(page(frame, ["k"]), tmp_path) as tab:
        assert tab.ask("document.documentElement.dataset.places") == "5000"
        assert tab.ask("at('more').textContent") == "100 more of 4900"
        assert tab.ask("at('lines-status').textContent") == "1667 lines, for one in 3 of 5000 points."
        assert tab.ask("document.querySelectorAll('*').length") < 1500, "a point is no element"
        # The last rows first, by a click on the heading.
        tab.ask("[...at('heads').querySelectorAll('button')].find((one) => one.textContent === 'k').click()")
        tab.ask("[...at('heads').querySelectorAll('button')].find((one) => one.textContent.startsWith('k')).click()")
        assert tab.ask(ROWS)[:2] == ["4999", "4998"]
