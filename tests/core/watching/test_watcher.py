"""Watching a run: it changes nothing of it, costs little, is silent without a terminal, and never kills it."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import simcluster
from simcluster.cli.terminal.show import watching
from simcluster.watching.board import NodeTelemetry, RunInfo, Telemetry
from simcluster.watching.watcher import SHARE, IntervalWatcher
from tests.support.socket_runs import ROOT

RUN: dict[str, Any] = {
    "topology": "smolcluster",
    "algorithm": "edp",
    "workload": {"name": "quadratic"},
    "stop": {"steps": 20},
}


class Seen:
    """All states that a watcher was shown."""

    def __init__(self) -> None:
        self.runs: list[dict[str, Any]] = []

    def __call__(self, run: dict[str, Any], history: list[dict[str, Any]]) -> None:
        self.runs.append(run)


def run(tmp_path: Path, name: str, watcher: Any, **keys: Any) -> Any:
    return simcluster.run(**{**RUN, **keys}, out=tmp_path / name, report=False, watcher=watcher)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, Seen]:
    """(a run that nobody watches, the same one watched at each step, what was seen)."""
    folder, seen = tmp_path_factory.mktemp("watched"), Seen()
    # Nothing costs anything by the clock that this watcher is given, so it looks at each step.
    watcher = IntervalWatcher(seen, interval_s=0.0, worked=lambda: 0.0)
    return run(folder, "alone", None), run(folder, "watched", watcher), seen


def test_a_watched_run_has_the_trace_and_the_weights_of_one_that_is_not(both: tuple[Any, Any, Seen]) -> None:
    alone, watched, seen = both
    for key in ("trace_sha256", "weights_sha256", "elapsed_s", "messages_sent", "bytes_sent"):
        assert watched.summary[key] == alone.summary[key], key
    assert len(seen.runs) > 100  # 5 nodes, 20 steps each, and the server counts all of them


def test_the_held_out_loss_is_known_while_the_run_goes_on(both: tuple[Any, Any, Seen]) -> None:
    _, watched, seen = both
    rows = watched.metrics[watched.metrics.name == "eval_loss"].groupby("step").value.first().to_dict()
    running = [run for run in seen.runs if run["state"] == "running" and run["eval_step"] is not None]
    assert len({run["eval_step"] for run in running}) > 10
    assert all(run["eval_loss"] == rows[run["eval_step"]] for run in running)
    assert seen.runs[-1]["eval_loss"] == watched.summary["loss"]


def test_it_ends_with_what_the_summary_says(both: tuple[Any, Any, Seen]) -> None:
    _, watched, seen = both
    last = seen.runs[-1]
    assert last["state"] == "done"
    assert {node["name"]: node["bytes_sent"] for node in last["nodes"]} == {
        name: node["bytes_sent"] for name, node in watched.summary["nodes"].items()
    }
    assert {link["name"]: link["bytes"] for link in last["links"]} == {
        name: link["bytes"] for name, link in watched.summary["links"].items()
    }
    computed_s = {node["name"]: node["compute_s"] for node in last["nodes"]}
    assert computed_s == pytest.approx({name: node["compute_s"] for name, node in watched.summary["nodes"].items()})


def test_steps_and_the_clock_never_go_back(both: tuple[Any, Any, Seen]) -> None:
    runs = both[2].runs
    assert all(a["elapsed_s"] <= b["elapsed_s"] and a["step"] <= b["step"] for a, b in pairwise(runs))
    assert runs[-1]["step"] == 20


def test_a_straggler_of_the_topology_is_named_with_its_factor(tmp_path: Path) -> None:
    seen = Seen()
    overrides = {"topology.nodes.n2.straggler.factor": 5}
    algorithm = {"name": "all_reduce_dp"}
    run(tmp_path, "slow", IntervalWatcher(seen, interval_s=0.0, worked=lambda: 0.0), overrides=overrides,
        algorithm=algorithm, topology={"generator": "star", "workers": 3})  # fmt: skip
    warned = [warning for run in seen.runs for warning in run["warnings"]]
    assert {warning["name"] for warning in warned if warning["kind"] == "straggler"} == {"n2"}
    assert [warning["ratio"] for warning in seen.runs[-1]["warnings"]] == pytest.approx([5.0], rel=0.06)
    # The first look is in the middle of a step, and there are 20 of them: exact to a twentieth.


def test_a_look_that_costs_much_is_rare_and_one_that_costs_nothing_keeps_the_interval() -> None:
    clock = [0.0]
    cost_s = [0.0]
    looks: list[float] = []

    def show(run: dict[str, Any], history: list[dict[str, Any]]) -> None:
        looks.append(clock[0])
        clock[0] += cost_s[0]

    watcher = IntervalWatcher(show, interval_s=0.25, now=lambda: clock[0], worked=lambda: clock[0])
    watcher.begin(RunInfo(name="r", nodes=["a"]))
    for cost_s[0], least_s in ((0.0, 0.25), (0.1, 0.1 / SHARE)):
        looks.clear()
        for _ in range(2000):
            clock[0] += 0.01
            watcher.look(lambda: Telemetry(elapsed_s=clock[0]))
        gaps = [b - a for a, b in pairwise(looks)][1:]
        assert least_s <= min(gaps) + 1e-9
        assert max(gaps) < least_s + cost_s[0] + 0.02


def test_a_view_that_breaks_ends_the_watching_and_not_the_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    calls = []

    def broken(run: dict[str, Any], history: list[dict[str, Any]]) -> None:
        calls.append(run)
        raise RuntimeError("no such colour")

    finished = run(tmp_path, "broken", IntervalWatcher(broken, interval_s=0.0))
    assert finished.summary["status"] == "done"
    assert len(calls) == 1
    assert "the run continues" in caplog.text


def test_a_failed_run_says_why(tmp_path: Path) -> None:
    seen = Seen()
    with pytest.raises(simcluster.RunError):
        run(tmp_path, "failed", IntervalWatcher(seen, interval_s=0.0), algorithm="all_reduce_dp",
            regroup=False, faults=[{"kind": "crash", "node": "pi4", "at": "1 ms"}])  # fmt: skip
    assert seen.runs[-1]["state"] == "failed"
    assert "pi4" in seen.runs[-1]["error"]
    assert ("lost", "pi4") in [(warning["kind"], warning["name"]) for warning in seen.runs[-1]["warnings"]]


def test_without_a_terminal_there_is_no_view_but_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    with watching(silent=False) as watcher:
        assert watcher is None
    assert capsys.readouterr() == ("", "note: --watch draws on a terminal, and standard error is none\n")


def test_a_terminal_sees_the_run_while_it_goes_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with watching(silent=False) as watcher:
        assert watcher is not None
        watcher.begin(RunInfo(name="seen", nodes=["a"], steps=9))
        watcher.look(lambda: Telemetry(elapsed_s=1.0, nodes=[NodeTelemetry(name="a", rank=0, state="running", step=4)]))
    assert "step 4/9" in capsys.readouterr().err


@pytest.mark.slow
def test_ctrl_c_ends_it_in_a_sentence_and_gives_the_cursor_back(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "simcluster", "run", "quickstart", "--watch", "--set", "stop.steps=100000"],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=theirs, cwd=tmp_path, start_new_session=True,
        env={"PYTHONPATH": str(ROOT), "PATH": "", "TERM": "xterm"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    os.close(theirs)
    try:
        seen = b""
        while b"steps/s" not in seen:
            seen += os.read(ours, 65536)
        process.send_signal(signal.SIGINT)
        try:
            while data := os.read(ours, 65536):
                seen += data
        except OSError:  # what a pty says when nobody has its other end any more
            pass
        assert process.wait() == 130
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    text = seen.decode()
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1
    assert text.strip().splitlines()[-1].removeprefix("\x1b[?25h") == "interrupted"
    assert "Traceback" not in text
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_a_resumed_run_is_watched_too(tmp_path: Path) -> None:
    first, seen = tmp_path / "first", Seen()
    run(tmp_path, "first", None, checkpoint={"every": 10}, stop={"steps": 10}, algorithm="all_reduce_dp")
    simcluster.resume(first, overrides={"stop.steps": 20}, report=False, watcher=IntervalWatcher(seen, interval_s=0.0))
    assert seen.runs[-1]["step"] == 20
    assert seen.runs[-1]["state"] == "done"
