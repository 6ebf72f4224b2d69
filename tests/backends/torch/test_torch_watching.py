"""Watching a run on torch: what each rank tells rank 0, and the state in the run's folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import simcluster
from simcluster.watching.board import Telemetry
from simcluster.watching.live_file import read_live
from tests.backends.torch.test_torch_backend import in_threads, job, record_of
from tests.support.seen import Seen


def test_a_watcher_is_told_of_all_that_the_ranks_did() -> None:
    seen = Seen()
    record = record_of(in_threads(job("ring", watcher=seen))[0])
    assert [(run.nodes, run.backend) for run in seen.runs] == [(["a", "b", "c"], "torch")]
    assert seen.error == ""
    for node, told in zip(record.nodes, seen.last.nodes, strict=True):
        assert (told.name, told.rank, told.state, told.step, told.metrics) == (
            node.name, node.rank, "ended", 1, {"total": 3.0}
        )  # fmt: skip
        sent = (told.messages_sent, told.bytes_sent, told.bytes_received)
        assert sent == (node.messages_sent, node.bytes_sent, node.bytes_received)
    (first,) = {(node.bytes_sent, node.messages_sent) for node in record.nodes}
    # a ring: each rank sends to the next one only, and c-a counts as a-c, backward
    ways = {link.name: (link.bytes_forward, link.bytes_backward) for link in seen.last.links}
    assert ways == {"a-b": (first[0], 0), "b-c": (first[0], 0), "a-c": (0, first[0])}


def test_a_watcher_that_fails_ends_no_run() -> None:
    def fail(telemetry: Telemetry) -> None:
        raise OSError("no terminal")

    assert record_of(in_threads(job("ring", watcher=Seen(fail)))[0]).error is None


@pytest.mark.slow
def test_a_run_has_a_state_in_its_folder_while_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simcluster.watching.live_file.FIRST_S", 0.0)
    monkeypatch.setattr("simcluster.watching.live_file.INTERVAL_S", 0.0)
    (tmp_path / "waits.py").write_text(
        "import asyncio\nfrom pathlib import Path\n\n\n"
        "async def waits(node, replica, *, seen: str = ''):\n"
        "    node.record(step=1, loss=0.5)\n"
        "    while not Path(seen).exists():\n"
        "        await asyncio.sleep(0.01)\n"
    )
    states: list[dict[str, Any]] = []

    def look(telemetry: Telemetry) -> None:
        found = read_live(tmp_path / "run")
        if found is not None and {node["step"] for node in found["run"]["nodes"]} == {1}:
            states.append(found)
            (tmp_path / "seen").touch()

    algorithm = {"path": str(tmp_path / "waits.py:waits"), "seen": str(tmp_path / "seen")}
    run = simcluster.run(
        "quickstart", topology=simcluster.Topology.star(2), overrides={"algorithm": algorithm, "stop.steps": 1},
        backend="torch", out=tmp_path / "run", report=False, watcher=Seen(look), options={"heartbeat_s": 0.05},
    )  # fmt: skip
    assert run.summary["status"] == "done"
    state = states[0]["run"]
    assert (state["backend"], state["state"], states[0]["alive"]) == ("torch", "running", True)
    assert [(node["state"], node["loss"]) for node in state["nodes"]] == [("running", 0.5)] * 2
    assert read_live(tmp_path / "run") is None


@pytest.mark.slow
@pytest.mark.parametrize(("choice", "has_any"), [(True, 1.0), (False, 0.0)])
def test_the_option_shortcuts_reaches_every_process(tmp_path: Path, choice: bool, has_any: float) -> None:
    (tmp_path / "says.py").write_text(
        "async def says(node, replica):\n    node.record(step=1, loss=0.5, fast=float(node.fast is not None))\n"
    )
    run = simcluster.run(
        "quickstart", topology=simcluster.Topology.star(2), backend="torch", out=tmp_path / "run", report=False,
        overrides={"algorithm": {"path": str(tmp_path / "says.py:says")}, "stop.steps": 1},
        options={"shortcuts": choice},
    )  # fmt: skip
    values = run.metrics[run.metrics["name"] == "fast"]["value"]
    assert list(values) == [has_any] * 2
