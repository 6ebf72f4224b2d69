"""The lines of real nodes: on both backends, as text and as JSON, stuck ones too, and never in a node's way."""

from __future__ import annotations

import io
import itertools
import json
import logging
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from simcluster_backends.common import narrator
from simcluster_backends.common.log_line import MACHINE
from simcluster_backends.common.machine import MachineMeter
from simcluster_backends.common.shares import TimeShares
from simcluster_backends.sockets import run_cluster

import simcluster
from simcluster.cli.terminal.show import print_line
from simcluster.logs import setup as logs
from simcluster.logs.setup import KEYS, LogSettings
from simcluster.runs.recorder import Recorder
from tests.support.levels import sample_of
from tests.support.socket_runs import Running, job, wait_for

RUN: dict[str, Any] = {
    "name": "told", "topology": {"generator": "star", "workers": 2}, "algorithm": "sync_ps", "workload": "quadratic",
    "stop": {"steps": 5},
}  # fmt: skip
FIELDS = {
    "node", "ended", "elapsed_s", "step", "steps", "loss", "steps_per_s", "samples_per_s", "computing", "sending",
    "waiting", *MACHINE,
}  # fmt: skip
TEXT = re.compile(
    r"[-0-9]{10} [:0-9]{8},\d{3} INFO (\w+): ended after \S+ s at step 5( of 5)?(, loss \S+)?, \S+ steps/s, "
    r"\S+ samples/s, computing \d+ %, sending \d+ %, waiting \d+ %, memory \S+ MB, CPU \d+ %"
)


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    yield
    logs.close()


@pytest.mark.slow
@pytest.mark.parametrize("backend", sample_of(["sockets", "torch"], 2))
def test_every_real_node_says_at_its_end_what_it_did(backend: str, tmp_path: Path) -> None:
    simcluster.run(**RUN, backend=backend, out=tmp_path / "run", report=False)
    files = {file.stem: file.read_text().splitlines() for file in (tmp_path / "run" / "logs").iterdir()}
    assert len(files) == 2
    for name, lines in files.items():
        found = TEXT.match(lines[-1])
        assert found is not None, lines
        assert found[1] == name


@pytest.mark.slow
@pytest.mark.parametrize("backend", sample_of(["sockets", "torch"], 2, 1))
def test_as_json_the_line_has_all_fields(backend: str, tmp_path: Path) -> None:
    logs.configure(LogSettings("json", "info"), io.StringIO())
    simcluster.run(**RUN, backend=backend, out=tmp_path / "run", report=False)
    ranks = set()
    for file in (tmp_path / "run" / "logs").iterdir():
        *_, line = [json.loads(text) for text in file.read_text().splitlines()]
        assert set(KEYS) | FIELDS <= set(line)
        assert (line["job"], line["component"], line["node"], line["level"]) == ("told", "node", file.stem, "info")
        assert line["ended"] is True
        assert line["step"] == 5
        assert line["message"].startswith(f"{file.stem}: ended after")
        assert line["computing"] + line["sending"] + line["waiting"] <= 1.001  # each is rounded
        ranks.add(line["rank"])
    assert ranks == {0, 1}


@pytest.mark.slow
@pytest.mark.parametrize("backend", sample_of(["sockets", "torch"], 2))
def test_above_info_nodes_say_nothing(backend: str, tmp_path: Path) -> None:
    logs.configure(LogSettings(level="warning", loki="", component="run"), io.StringIO())
    simcluster.run(**RUN, backend=backend, out=tmp_path / "run", report=False)
    assert [file.read_text() for file in (tmp_path / "run").glob("logs/*")] in ([], [""] * 2)


@pytest.mark.slow
def test_a_stuck_node_says_what_it_waits_for(tmp_path: Path) -> None:
    running = Running(job("waits_for_nothing", "ab", log_folder=tmp_path, options={"stuck_s": 4.0}))
    line = wait_for(lambda: (tmp_path / "a.log").exists() and (tmp_path / "a.log").read_text())
    assert "a: step 0, " in line
    assert line.strip().endswith("no step, waits for recv(source=1, tag='never')")
    # The line also covers the start of the node, which a loaded machine stretches: no fixed share holds everywhere.
    shares = re.search(r"computing (\d+) %, sending (\d+) %, waiting (\d+) %", line)
    assert shares
    computing, sending, waiting = map(int, shares.groups())
    assert waiting > computing + sending
    assert running.result().error is not None


@pytest.mark.slow
def test_a_node_whose_machine_tells_nothing_runs_and_says_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*arguments: Any, **keys: Any) -> Any:
        raise psutil.AccessDenied(1)

    for name in ("cpu_percent", "virtual_memory", "Process"):
        monkeypatch.setattr(psutil, name, fails)
    with caplog.at_level(logging.INFO, logger="simcluster.node"):
        # Rank 0 of a torch run is this process.
        run = simcluster.run(**RUN, backend="torch", out=tmp_path / "run", report=False)
    assert run.summary["steps"] == 5
    (said,) = [record for record in caplog.records if record.name == "simcluster.node"]
    fields = said.fields  # type: ignore[attr-defined]
    assert fields["rss_bytes"] is None
    assert fields["steps_per_s"] > 0
    assert "memory" not in said.getMessage()


@pytest.mark.slow
def test_a_sensor_that_hangs_does_not_silence_the_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    released = threading.Event()

    def hangs(self: MachineMeter) -> dict[str, float]:
        released.wait()
        return {}

    monkeypatch.setattr(MachineMeter, "read", hangs)
    try:
        with caplog.at_level(logging.INFO, logger="simcluster.node"):
            simcluster.run(**RUN, backend="torch", out=tmp_path / "run", report=False)
        (said,) = [record for record in caplog.records if record.name == "simcluster.node"]
        assert "ended after" in said.getMessage()
    finally:
        released.set()


def test_the_last_line_is_logged_when_the_algorithm_ends_not_at_the_next_interval(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(narrator, "FIRST_S", 3600.0)
    logged = threading.Event()
    monkeypatch.setattr(narrator.log, "info", lambda *given, **more: logged.set())
    with caplog.at_level(logging.INFO, logger="simcluster.node"):
        clock = itertools.count(1)
        recorder = Recorder(0, "a", lambda: float(next(clock)))
        device = SimpleNamespace(shares=TimeShares())
        told = narrator.Narrator(SimpleNamespace(recorder=recorder, device=device, waits=list))  # type: ignore[arg-type]
        told.begin()
        recorder.end_algorithm()
        assert logged.wait(60)  # the evaluation that follows may take minutes
        logged.clear()
        told.end()
        assert not logged.is_set()


def test_the_terminal_of_a_command_shows_no_lines_below_its_level(capsys: pytest.CaptureFixture[str]) -> None:
    line = "2026-01-02 03:04:05,678 {} pi4: step 3"
    for level in ("INFO", "WARNING"):
        print_line("pi4", line.format(level))
    print_line("pi4", "INFO printed by the program")
    assert capsys.readouterr().err.splitlines() == [
        f"pi4 | {line.format('WARNING')}",
        "pi4 | INFO printed by the program",
    ]
    logs.configure(LogSettings(level="info"), io.StringIO())
    print_line("pi4", line.format("INFO"))
    assert "INFO pi4: step 3" in capsys.readouterr().err


def test_a_simulated_run_logs_no_lines_of_nodes(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    with caplog.at_level(logging.INFO):
        simcluster.run(**RUN, out=tmp_path / "run", report=False)
    assert [record for record in caplog.records if record.name == narrator.log.name] == []


@pytest.mark.slow
def test_a_launcher_learns_what_a_nodes_machine_tells(tmp_path: Path) -> None:
    seen: list[Any] = []

    class Watcher:
        def begin(self, run: Any) -> None: ...

        def look(self, telemetry: Any) -> None:
            seen.extend(telemetry().nodes)

        def end(self, telemetry: Any, error: str) -> None: ...

    request = job("forever", "ab", tmp_path, watcher=Watcher(), options={"limit_s": 4.0, "heartbeat_s": 0.1})
    run_cluster(request)
    told = [node for node in seen if node.rss_bytes is not None]
    assert {node.name for node in told} == {"a", "b"}
    assert all(node.rss_bytes > 1_000_000 and node.cpu_percent is not None for node in told)
