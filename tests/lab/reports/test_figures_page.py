"""docs/figures.md shows what there is: each picture is in the repository, small, and made by the command below it."""

from __future__ import annotations

import re
from pathlib import Path

from simcluster.lab.reports.compare_plots import ComparePlots
from simcluster.lab.reports.figure_style import drawn_by
from simcluster.lab.reports.plots import RunPlots
from simcluster.lab.reports.sweeps.plots import SweepPlots
from simcluster.lab.what_if.plots import WhatIfPlots
from tools.figures import PAGE, commands
from tools.gallery.images import images

TEXT = PAGE.read_text(encoding="utf-8")
FOLDER = PAGE.parent / "figures"


def test_every_picture_is_there_and_every_one_that_is_there_is_shown() -> None:
    """The picture of docs/performance.md is a measurement; the gallery's are tested in tools/gallery."""
    text = TEXT + (PAGE.parent / "performance.md").read_text(encoding="utf-8")
    shown = re.findall(r"!\[[^\]]+\]\(figures/([^)]+)\)", text)
    files = [path for path in FOLDER.glob("*.svg") if path.name not in images()]
    assert sorted(shown) == sorted(path.name for path in files)
    for path in files:
        assert path.stat().st_size < 150_000
        assert "<svg" in path.read_text(encoding="utf-8")


def test_the_command_that_makes_a_picture_stands_below_it() -> None:
    made = {Path(words[words.index("--out") + 1]).name: words for words in commands(TEXT) if words[1] == "figure"}
    parts = re.split(r"!\[[^\]]+\]\(figures/([^)]+)\)", TEXT)[1:]
    for name, below in zip(parts[::2], parts[1::2], strict=True):
        assert f"--out docs/figures/{name}" in below
    assert made.keys() == set(parts[::2])


def test_the_table_has_all_figures() -> None:
    rows = dict(re.findall(r"^\| (a run|several runs|a sweep|a what-if)[^|]*\| (.*) \|$", TEXT, flags=re.MULTILINE))
    named = {of: set(re.findall(r"`(\w+)`", text)) for of, text in rows.items()}
    kinds = {"a run": RunPlots, "a sweep": SweepPlots, "a what-if": WhatIfPlots}
    for of, plots in kinds.items():
        assert named[of] == set(drawn_by(plots)), of
    assert set(drawn_by(ComparePlots)) < named["several runs"]


def test_no_folder_is_made_twice() -> None:
    """Else a figure that is drawn again would be of what came later."""
    made = [words[words.index("--out") + 1] for words in commands(TEXT)]
    assert len(made) == len(set(made))
