"""The state of a run in a file: it is there while the run goes on, changes nothing of it, and is gone after it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import simcluster
from simcluster.runs.destination import check_folder
from simcluster.topology import load
from simcluster.watching.board import NodeTelemetry, RunInfo, Telemetry
from simcluster.watching.live_file import LiveFile, read_live
from simcluster.watching.watcher import IntervalWatcher
from tests.core.watching.test_watcher import RUN

STAR = load("smolcluster")
INFO = RunInfo(name="quickstart", nodes=list(STAR.workers), algorithm="edp", topology="smolcluster", steps=9)


def telemetry(step: int) -> Telemetry:
    nodes = [NodeTelemetry(name=name, rank=rank, state="running", step=step) for rank, name in enumerate(INFO.nodes)]
    return Telemetry(elapsed_s=float(step), nodes=nodes)


def test_the_file_has_the_last_state_with_a_map_and_is_removed_with_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "a"
    live = LiveFile(folder, STAR, first_s=0.0)
    live.begin(INFO)
    assert not folder.exists()
    live.look(lambda: telemetry(3))
    found = read_live(folder)
    assert found is not None
    assert (found["run"]["step"], found["alive"], found["pid"]) == (3, True, os.getpid())
    assert {spot["name"] for spot in found["run"]["map"]["spots"]} == set(STAR.nodes)
    check_folder(folder)  # a killed run leaves only this, and another may begin there
    live.close()
    assert not folder.exists()
    assert read_live(folder) is None


def test_a_folder_that_was_there_stays_without_the_file(tmp_path: Path) -> None:
    live = LiveFile(tmp_path, STAR, first_s=0.0)
    live.begin(INFO)
    live.look(lambda: telemetry(1))
    live.close()
    assert list(tmp_path.iterdir()) == []


def test_no_link_is_followed_and_a_file_that_cannot_be_written_ends_only_the_watching(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("kept")
    os.symlink(tmp_path / "target", tmp_path / "live.json")
    assert read_live(tmp_path) is None
    live = LiveFile(tmp_path / "target" / "a", STAR, first_s=0.0)  # below a file
    live.begin(INFO)
    live.look(lambda: telemetry(1))
    live.close()
    assert (tmp_path / "target").read_text() == "kept"


@pytest.mark.parametrize("content", ["[]", "{", '{"run": 3}', '{"pid": 1, "host": "", "history": [1], "run": {}}'])
def test_something_else_in_the_file_is_an_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "live.json").write_text(content)
    with pytest.raises(ValueError, match="no state of a run"):
        read_live(tmp_path)


@pytest.mark.slow
def test_a_run_with_a_state_file_has_the_bits_of_one_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = simcluster.run(**RUN, out=tmp_path / "alone", report=False)
    written: list[dict[str, Any]] = []
    monkeypatch.setattr("simcluster.watching.live_file.FIRST_S", 0.0)
    monkeypatch.setattr("simcluster.watching.live_file.NODE_S", 0.0)  # the first state is due at once
    monkeypatch.setattr("simcluster.watching.live_file.INTERVAL_S", 0.0)
    monkeypatch.setattr("simcluster.watching.watcher.SHARE", 1e9)
    monkeypatch.setattr(
        "simcluster.watching.live_file.write_whole",
        lambda folder, name, *, content, durable: written.append(json.loads(content)),
    )
    watched = simcluster.run(
        **RUN, out=tmp_path / "watched", report=False, watcher=IntervalWatcher(lambda run, history: None)
    )
    assert len(written) > 100  # each of 5 nodes makes 20 steps, and the server counts all of them
    assert written[-1]["run"]["name"] == alone.summary["name"]
    for key in ("trace_sha256", "weights_sha256", "elapsed_s", "messages_sent", "bytes_sent"):
        assert watched.summary[key] == alone.summary[key], key
    names = [sorted(path.name for path in (tmp_path / run).iterdir()) for run in ("alone", "watched")]
    assert names[0] == names[1]
