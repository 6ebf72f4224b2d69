"""Path of a drawn picture below docs/figures -> the function that draws it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.support.root import ROOT
from tools.gallery import papers, steps, topologies
from tools.gallery.algorithms import SCENES
from tools.gallery.pays import draw as pays
from tools.gallery.shelf import draw as shelf
from tools.gallery.terminal import draw as terminal

FOLDER = ROOT / "docs" / "figures"


def images() -> dict[str, Callable[[], str]]:
    """Return path in FOLDER -> function that draws the picture."""
    found: dict[str, Callable[[], str]] = {
        "shelf.svg": shelf.drawn,
        "pays.svg": pays.drawn,
        "terminal.svg": terminal.drawn,
    }
    found |= {f"algorithms/{scene.algorithm}.svg": partial(steps.simulated, scene) for scene in SCENES}
    found |= {f"topologies/{name}.svg": partial(topologies.draw, name) for name in topologies.names()}
    found |= {f"papers/{chart.paper}.svg": partial(papers.drawn, chart) for chart in papers.CHARTS}
    return found


def is_current(name: str, drawn: str) -> bool:
    """Return whether the file of picture *name* equals *drawn*, byte by byte."""
    file = FOLDER / name
    return file.is_file() and file.read_bytes() == drawn.encode("utf-8")


def write(name: str, drawn: str) -> Path:
    """Write the file of picture *name*."""
    file = FOLDER / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(drawn.encode("utf-8"))
    return file
