"""explorer.html: what the scripts are given, and, in a real browser, that it draws what the reader asks for."""

from __future__ import annotations

import html
import json
import math
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from simcluster.reports.explorer import render
from tests.support.browser import chromium, needs_browser

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


def given(text: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, flags=re.S)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
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
    assert data["own"] == {"seed": ["0", "1", "0", "1", "0", "1", "0", None, "0", "1", "0", "1"]}
    assert data["known"] == [number != 7 for number in range(12)]


def test_no_name_of_a_sweep_becomes_markup() -> None:
    text = page(table([f"a.{EVIL}", KEYS[1]], EVIL), [f"a.{EVIL}", KEYS[1]], name=EVIL)
    assert "<img" not in re.sub(r"<script>/\*.*?</script>", "", text, count=1, flags=re.S)
    assert given(text)["name"] == EVIL


def opened(text: str, tmp_path: Path, address: str = "", probe: str = "", width: int = 1200) -> tuple[str, str]:
    """(the page after scripts ran, the browser's log); *probe* is JavaScript, run at the end without the policy."""
    if probe:
        text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
        text = text.replace("</body>", f"<script>{probe}</script></body>")
    (tmp_path / "explorer.html").write_text(text, encoding="utf-8")
    done = chromium((tmp_path / "explorer.html").as_uri() + address, tmp_path / "profile", width)
    return done.stdout, done.stderr


@needs_browser
@pytest.mark.browser
def test_the_address_chooses_what_a_browser_draws(tmp_path: Path) -> None:
    # k of 2 and 4 without the failed point: 7 points, of which those above 25 s:
    # k=2: 200 and 210 on 10 Mbps, 20 on 1 Gbps (too few); k=4: 400, 410, 40, 41
    address = "#x=elapsed_s&colour=&seeds=each&is.algorithm.k=2&is.algorithm.k=4&is.status=done&min.elapsed_s=25"
    text, log = opened(page(table()), tmp_path, address)
    assert "CONSOLE" not in log
    assert 'data-drawn="true" ' in text or 'data-drawn="true">' in text
    assert "6 of 12 points; all drawn." in text
    assert text.count('<path class="point') == 6
    body = text[text.index('<tbody id="rows">') : text.index("</tbody>")]
    assert re.findall(r">(\d+)</button>", body) == ["4", "5", "8", "9", "10", "11"]


PROBE = """
const result = { title: document.title };
const figure = document.getElementById("figure");
const drawn = () => figure.data.map((one) => [one.name, one.x, one.y, one.error_y && one.error_y.array]);
const pick = (id, value) => { const e = at(id); e.value = value; e.dispatchEvent(new Event("change")); };
result.start = drawn();
pick("colour", "elapsed_s"); pick("x", "seed");
result.scale = figure.data.map((one) => one.marker.color);
pick("colour", sweep.keys[0]); pick("x", sweep.keys[1]);
at("seeds").lastElementChild.click();
result.each = drawn().map(([, x]) => x.length);
pick("x", "status"); pick("colour", "");
result.words = drawn();
pick("y", "bytes_sent");
const symbols = figure.data[0].marker.symbol;
result.failing = figure.data[0].y.filter((y, index) => symbols[index] === "x");
result.status = at("status").textContent;
result.address = location.hash;
document.querySelector("#rows tr:nth-child(4) button").click();
result.point = [document.querySelector("#detail h2").textContent, at("report").getAttribute("href")];
result.focus = document.activeElement.id;
figure.emit("plotly_click", { points: [{ customdata: 7 }] });
result.failed = at("detail").textContent;
result.listed = at("errors").textContent;
result.overflow = document.documentElement.scrollWidth - document.documentElement.clientWidth;
result.images = document.images.length;
document.documentElement.dataset.result = JSON.stringify(result);
"""


@needs_browser
@pytest.mark.browser
def test_controls_clicks_and_hostile_names_in_a_narrow_browser(tmp_path: Path) -> None:
    keys = [f"a.{EVIL}", KEYS[1]]
    text, log = opened(page(table(keys, EVIL), keys, EVIL, {3}), tmp_path, probe=PROBE, width=500)
    assert "CONSOLE" not in log
    found = re.search(r'data-result="([^"]*)"', text)
    assert found is not None
    result = json.loads(html.unescape(found[1]))
    assert result["title"] == f"{EVIL}, explored"
    assert result["images"] == 0
    # Means over two seeds: (10 + 11) / 2, and ten times that; of k = 2 on 1 Gbps one seed is left.
    assert result["start"] == [
        ["1", [10, 1000], [105, 10.5], [5, 0.5]],
        ["2", [10, 1000], [205, 20], [5, 0]],
        ["4", [10, 1000], [405, 40.5], [5, 0.5]],
    ]
    # Seed 0 of everything in one colour scale, then seed 1: the keys stay apart. 410 and 10 are wide: logarithms.
    times_s = sorted([100, 10, 200, 20, 400, 40, 110, 11, 210, 410, 41])
    assert sorted(result["scale"][0]) == pytest.approx([math.log10(time_s) for time_s in times_s])
    assert result["each"] == [4, 3, 4]
    assert result["words"][0][1] == ["done"] * 11, "the failed point has no time to draw"
    assert result["failing"] == [107], "it had sent something"
    assert result["status"] == "12 of 12 points; all drawn; crosses are of runs that failed."
    assert result["address"] == "#x=status&y=bytes_sent&colour=&seeds=each"
    assert result["point"] == ["Point 3 done", "points/run3/report.html"]
    assert result["focus"] == "detail"
    assert "PeerLost" in result["failed"]
    assert "This point left no run." in result["failed"]
    assert EVIL in result["listed"]
    assert result["overflow"] <= 0


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
    text, log = opened(page(frame, ["k"]), tmp_path)
    assert "CONSOLE" not in log
    assert 'data-places="5000"' in text
    assert text.count('<path class="point') == 5000
    assert "100 more of 4900" in text
