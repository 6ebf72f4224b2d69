"""Progress in a notebook: one line, updated in place; nothing anywhere else, or if the caller has a callback."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

import simcluster
from simcluster.watching import notebook


class Shown:
    """IPython's display, which keeps what it showed."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.displays = 0

    def display(self, data: dict[str, str], *, raw: bool, display_id: bool) -> Shown:
        assert raw
        assert display_id
        self.displays += 1
        self.texts.append(data["text/plain"])
        return self

    def update(self, data: dict[str, str], *, raw: bool) -> None:
        assert raw
        self.texts.append(data["text/plain"])


def ipython(monkeypatch: pytest.MonkeyPatch, **shell: Any) -> Shown:
    shown = Shown()
    module = SimpleNamespace(get_ipython=lambda: SimpleNamespace(**shell), display=shown)
    monkeypatch.setitem(sys.modules, "IPython", module)
    return shown


@pytest.mark.slow
def test_a_run_and_a_sweep_show_one_line_each_in_a_notebook(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    shown = ipython(monkeypatch, kernel=object())
    monkeypatch.chdir(tmp_path)
    simcluster.run("quickstart", stop={"steps": 7}, report=False)
    assert shown.displays == 1
    assert shown.texts[-1].startswith("quickstart " + "█" * notebook.WIDTH + " 7 of 7 steps")
    simcluster.sweep("quickstart", {"seed": [1, 2]}, overrides={"stop.steps": 2}, jobs=1, report=False)
    assert shown.displays == 2
    assert " 2 of 2 runs" in shown.texts[-1]


def test_no_line_outside_a_notebook_or_with_a_callback(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.chdir(tmp_path)
    shown = ipython(monkeypatch)  # a terminal's IPython has no kernel
    simcluster.run("quickstart", stop={"steps": 2}, report=False)
    shown_too = ipython(monkeypatch, kernel=object())
    steps: list[int] = []
    simcluster.run("quickstart", stop={"steps": 2}, progress=lambda done, total: steps.append(done), report=False)
    assert steps[-1] == 2
    assert shown.texts == shown_too.texts == []


def test_updates_are_few_and_the_last_state_is_always_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = ipython(monkeypatch, kernel=object())
    monkeypatch.setattr(notebook.time, "monotonic", lambda: 5.0)
    with notebook.notebook_progress("long") as progress:
        assert progress is not None
        for done in range(1, 1001):
            progress(done, 1000)
    assert len(shown.texts) == 2  # the first and the last: the clock stood still
    assert "1,000 of 1,000 steps" in shown.texts[-1]
