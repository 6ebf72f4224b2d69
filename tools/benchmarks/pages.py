"""The pages in a headless browser: their size, height, and response times.

    python -m tools.benchmarks.pages

Times are medians by the clock of the page. A change ends when the next frame is on the screen.
"""

from __future__ import annotations

import base64
import gzip
import re
import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from simcluster.lab.reports import report
from simcluster.results import Run
from simcluster.runs.write import write_run
from simcluster.topology import load
from tests.support.devtools import browser
from tests.support.made_up_runs import made_up_config, made_up_run, star_document, topology_document

ROUNDS = 7
PACKED = re.compile(r'<script type="text/plain" id="plotly">(.*?)</script>')
FIRST = """new MutationObserver(() => {
  if (!window.first && document.querySelector('.main-svg')) window.first = performance.now();
}).observe(document, { childList: true, subtree: true });"""
DRAWN = "document.documentElement.dataset.drawn === 'true'"
CHANGES = {
    "another vertical axis": "pick('y', 'loss')",
    "another horizontal axis": "pick('x', 'workload.learning_rate')",
    "a scale of colours": "pick('colour', 'elapsed_s')",
    "each point": "at('seeds').lastElementChild.click()",
    "a range": "filterOf(state, 'elapsed_s').max = '20'; update()",
    "no range": "at('clear').click()",
    "another order": "state.sort = 'loss'; update()",
    "means over seeds": "at('seeds').firstElementChild.click()",
}
TIMED = """(async () => {
  const frame = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  const pick = (id, value) => { at(id).value = value; at(id).dispatchEvent(new Event('change')); };
  await frame();
  const start = performance.now();
  %s;
  await frame();
  return performance.now() - start;
})()"""


@dataclass(frozen=True)
class Opened:
    """The *name* and the size of a page, and the median time until it shows its first figure."""

    name: str
    bytes: int
    first_ms: float


def run_page(folder: Path, nodes: int | None = None) -> str:
    """Return the report of a made-up run: five nodes, or a star of *nodes*."""
    document = topology_document() if nodes is None else star_document(nodes)
    record = made_up_run(50) if nodes is None else made_up_run(10, list(document["nodes"]))
    run = Run(write_run(folder, made_up_config(topology=document), load(document), record, "0.1.0"))
    return report.render(run, load(document))


def as_it_was(page: str) -> str:
    """Return *page* in its former state: with plotly.js as plain text, and without a security
    policy.
    """
    packed = PACKED.search(page)
    assert packed is not None
    source = gzip.decompress(base64.b64decode(packed[1])).decode()
    plain = page.replace(packed[0], f'<script id="plotly">{source}</script>')
    plain = plain.replace("startPlotly().then(start", "Promise.resolve().then(start")
    return re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", plain)


def opening(rounds: int = ROUNDS) -> Iterator[Opened]:
    """Open a report alternately with plotly.js as text and compressed.

    Yield the results of both.
    """
    with tempfile.TemporaryDirectory() as folder:
        packed = run_page(Path(folder) / "run")
        pages = {"plotly.js as text": as_it_was(packed), "compressed": packed}
        taken: dict[str, list[float]] = {name: [] for name in pages}
        for place, text in enumerate(pages.values()):
            (Path(folder) / f"{place}.html").write_text(text, encoding="utf-8")
        with browser(Path(folder) / "profile") as tab:
            tab.call("Page.addScriptToEvaluateOnNewDocument", source=FIRST)
            for number in range(rounds + 1):
                for place, name in enumerate(pages):
                    tab.open((Path(folder) / f"{place}.html").as_uri())
                    first_ms = tab.wait_for("window.first")
                    if number:
                        taken[name].append(first_ms)
        for name, text in pages.items():
            yield Opened(name, len(text.encode()), statistics.median(taken[name]))


def many_nodes() -> tuple[int, float]:
    """Return (bytes without plotly.js, height in screens of 1280 by 800) of a report of 1,024
    nodes.
    """
    with tempfile.TemporaryDirectory() as folder:
        text = run_page(Path(folder) / "run", 1024)
        (Path(folder) / "report.html").write_text(text, encoding="utf-8")
        with browser(Path(folder) / "profile") as tab:
            tab.look(1280, dark=False, height=800)
            tab.open((Path(folder) / "report.html").as_uri())
            has_windows = "dataset.spans" in text  # reports of an older checkout have no spans
            tab.wait_for(f"{DRAWN} && !!document.documentElement.dataset.spans" if has_windows else DRAWN)
            return len(PACKED.sub("", text).encode()), tab.ask("document.documentElement.scrollHeight") / 800


def swept(points: int) -> str:
    """Return the explorer of a made-up sweep: four keys, five seeds, one failed point in 100."""
    from simcluster.lab.reports.sweeps import explorer  # an older checkout has it elsewhere

    random = np.random.default_rng(0)
    workers = random.integers(1, 17, points)
    bandwidth_Mbps = 10.0 ** random.integers(1, 5, points)
    rate = 10 ** random.uniform(-4, 0, points)
    time_s = (100 / workers + 50 / np.sqrt(bandwidth_Mbps)) * random.lognormal(0, 0.1, points)
    has_failed = random.random(points) < 0.01
    table = pd.DataFrame(
        {
            "point": range(points),
            "seed": np.arange(points) % 5,
            "algorithm.name": np.array(["sync_ps", "edp", "all_reduce_dp"])[random.integers(0, 3, points)],
            "topology.workers": workers,
            "workload.learning_rate": rate,
            "topology.bandwidth": [f"{value:g} Mbps" for value in bandwidth_Mbps],
            "status": np.where(has_failed, "failed", "done"),
            "elapsed_s": time_s,
            "loss": 0.1 + abs(np.log10(rate) + 2) + random.normal(0, 0.05, points) ** 2,
            "bytes_sent": random.integers(1, 10**9, points),
            "error": np.where(has_failed, "PeerLost: rank 1 is lost", None),
            "run": [f"{number:016x}" for number in range(points)],
        }
    )
    configs = [{"seed": int(seed), "stop": {"steps": 5}} for seed in table["seed"]]
    keys = ["algorithm.name", "topology.workers", "workload.learning_rate", "topology.bandwidth"]
    return explorer.render("swept", table, keys, [False] * points, configs)


def exploring(points: int, rounds: int = ROUNDS) -> tuple[int, float, dict[str, float]]:
    """Return (size in bytes, ms to open, change -> ms) of an explorer of *points*."""
    with tempfile.TemporaryDirectory() as folder:
        text = swept(points)
        (Path(folder) / "explorer.html").write_text(text, encoding="utf-8")
        with browser(Path(folder) / "profile") as tab:
            tab.look(1280, dark=False, height=800)
            tab.open((Path(folder) / "explorer.html").as_uri())
            tab.wait_for(DRAWN)
            opened_ms = tab.ask("performance.now()")
            taken: dict[str, list[float]] = {name: [] for name in CHANGES}
            for _ in range(rounds):
                for name, script in CHANGES.items():
                    taken[name].append(tab.ask(TIMED % script))
                tab.ask("state = fresh(); update()")
            return len(text.encode()), opened_ms, {name: statistics.median(found) for name, found in taken.items()}


def main() -> None:
    print("a report of five nodes")
    for page in opening():
        print(f"  {page.name}: {page.bytes / 1e6:.2f} MB, first figure after {page.first_ms:.0f} ms")
    size_bytes, screens = many_nodes()
    print(f"a report of 1,024 nodes: {size_bytes / 1e6:.2f} MB without plotly.js, {screens:.1f} screens of 1280 x 800")
    for points in (5000, 100_000):
        size_bytes, opened_ms, changes = exploring(points)
        print(f"an explorer of {points:,} points: {size_bytes / 1e6:.2f} MB, open after {opened_ms:.0f} ms; a change:")
        for name, ms in changes.items():
            print(f"  {ms:.0f} ms: {name}")


if __name__ == "__main__":
    main()
