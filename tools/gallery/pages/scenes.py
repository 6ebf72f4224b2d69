"""The pages to photograph: their sources, the commands to run before, and the actions on
each page.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.lab.ui.served import served
from tests.support.devtools import Page
from tests.support.root import ROOT
from tests.support.socket_runs import free_port

READY_S = 300.0
SUFFIXES = {".css", ".html", ".js", ".py"}
PIS = """name: pis
nodes: {left: {device: raspberry-pi-4}, right: {device: raspberry-pi-4}}
links: [{between: [left, right], type: ethernet-1g}]
"""
DRAWN = "document.documentElement.dataset.drawn === 'true'"


@dataclass(frozen=True)
class Scene:
    """A screenshot called *name*, *height* pixels high.

    *shown* is a context manager that opens the page in a tab. It writes runs to a directory.

    *sources* are the directories and files with the page's scripts, styles and texts.
    """

    name: str
    shown: Callable[[Page, Path], AbstractContextManager[None]]
    sources: tuple[str, ...]
    height: int = 800


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "simcluster", *words]


def done(folder: Path, *words: str) -> None:
    """Run a command of simcluster in *folder*, and wait until it exits."""
    subprocess.run(command(*words), cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@contextmanager
def running(folder: Path, *words: str) -> Iterator[None]:
    """Run a command of simcluster in *folder* until the end of the block."""
    process = subprocess.Popen(command(*words), cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(60)


@contextmanager
def report(tab: Page, folder: Path) -> Iterator[None]:
    done(folder, "run", "quickstart", "--out", "runs/quickstart")
    tab.open((folder / "runs/quickstart/report.html").as_uri())
    tab.wait_for(DRAWN)
    yield


@contextmanager
def explorer(tab: Page, folder: Path) -> Iterator[None]:
    swept = ["algorithm.name=sync_ps,all_reduce_dp,d_psgd", "topology.bandwidth=log(10 Mbps, 10 Gbps, 4)"]
    settings = [word for one in (*swept, "stop.steps=30") for word in ("--set", one)]
    done(folder, "sweep", "eight-on-a-switch", *settings, "--seeds", "2", "--jobs", "1", "--out", "runs/bandwidth")
    tab.open((folder / "runs/bandwidth/explorer.html").as_uri())
    tab.wait_for(DRAWN)
    yield


@contextmanager
def whatif(tab: Page, folder: Path) -> Iterator[None]:
    changes = ["--goal", "step-time", "--set", "stop.steps=20", "--jobs", "1"]
    done(folder, "whatif", "quickstart", *changes, "--out", "runs/whatif")
    tab.open((folder / "runs/whatif/report.html").as_uri())
    tab.wait_for(DRAWN)
    yield


@contextmanager
def runs(tab: Page, folder: Path) -> Iterator[None]:
    """Show six runs of different algorithms, and the runs of screenshots that were taken before."""
    for algorithm in ("edp", "local_sgd", "d_psgd", "ssp", "all_reduce_dp", "diloco"):
        done(folder, "run", "quickstart", "--algorithm", algorithm, "--no-report", "--out", f"runs/{algorithm}")
    with served(folder / "runs") as url:
        tab.open(url)
        tab.wait_for("document.querySelectorAll('td').length > 8")
        yield


@contextmanager
def coordinator(tab: Page, folder: Path) -> Iterator[None]:
    """Show a run on sockets after 20 seconds of training."""
    done(folder, "key", "cluster.token")
    at = f"127.0.0.1:{free_port()}"
    shape = ["--topology", "thunderbolt-mesh-4", "--backend", "sockets", "--set", "stop.steps=4000"]
    place = ["--coordinator", at, "--token-file", "cluster.token", "--no-report", "--out", "runs/mesh"]
    with running(folder, "run", "quickstart", *shape, *place):
        wait_for_url(f"http://{at}/")
        tab.open(f"http://{at}/")
        tab.wait_for("document.querySelectorAll('svg').length > 1")
        time.sleep(20)  # the curves need some history
        yield


@contextmanager
def chat(tab: Page, folder: Path) -> Iterator[None]:
    port = free_port()
    (folder / "pis.yaml").write_text(PIS)
    with running(folder, "serve", "pis.yaml", "--model", "smollm2", "--placement", "pipeline", "--port", str(port)):
        wait_for_url(f"http://127.0.0.1:{port}/health")
        tab.open(f"http://127.0.0.1:{port}/")
        tab.wait_for("!document.getElementById('model').hidden")
        tab.ask("document.getElementById('text').focus()")
        tab.call("Input.insertText", text="What is the capital of France?")
        for kind in ("keyDown", "keyUp"):
            tab.call(
                "Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", windowsVirtualKeyCode=13, text="\r"
            )
        tab.wait_for("document.querySelectorAll('[data-does=again]').length")
        yield


def wait_for_url(url: str) -> None:
    """Wait until *url* answers with status 200. Raise TimeoutError after READY_S."""
    end_s = time.monotonic() + READY_S
    while time.monotonic() < end_s:
        try:
            if httpx.get(url).status_code == httpx.codes.OK:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    raise TimeoutError(f"{url} does not answer")


WEB, REPORTS = "simcluster/web/page", "simcluster/lab/reports/page"
SCENES = (
    Scene(
        "report",
        report,
        (WEB, REPORTS, "simcluster/lab/reports/report.py", "simcluster/lab/reports/html_page.py"),
        1000,
    ),
    Scene("explorer", explorer, (WEB, REPORTS, "simcluster/lab/reports/sweeps/explorer.py"), 860),
    Scene("whatif", whatif, (WEB, REPORTS, "simcluster/lab/what_if/report.py"), 900),
    Scene("coordinator", coordinator, (WEB, "backends/simcluster_backends/sockets/coordinator/page"), 900),
    Scene("chat", chat, (WEB, "simcluster/lm/serving/web/page"), 620),
    Scene("runs", runs, (WEB, "simcluster/lab/ui/page"), 520),
)


def digest(scene: Scene) -> str:
    """Return the hash of the files that determine the page."""
    found = hashlib.sha256()
    for source in scene.sources:
        place = ROOT / source
        if not place.exists():
            raise FileNotFoundError(f"{scene.name}: no {source}")
        files = sorted(place.iterdir()) if place.is_dir() else [place]
        for file in files:
            if file.suffix in SUFFIXES:
                found.update(file.relative_to(ROOT).as_posix().encode() + b"\0" + file.read_bytes())
    return found.hexdigest()
