"""A run that tells a coordinator: one of its own over real HTTP, one that is not there, and what nobody may read."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from simcluster_backends.sockets import run_cluster
from simcluster_backends.sockets.coordinator.client import Client, NotAllowed
from simcluster_backends.sockets.coordinator.desk import CoordinatorDesk
from simcluster_backends.sockets.coordinator.service import CoordinatorService
from simcluster_backends.sockets.launcher.settings import read_options
from simcluster_backends.sockets.node.attend import attend_with_files
from simcluster_backends.sockets.wire.keys import key_of, read_token

import simcluster
from simcluster.errors import PeerLost, UsageError
from simcluster.job import ClusterJob
from simcluster.runs.record import RunRecord
from tests.support.socket_runs import Running, free_port, job, wait_for

TOKEN = "0123456789abcdef" * 4


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.touch(0o600)
    path.write_text(TOKEN + "\n")
    return path


def test_a_run_serves_its_own_state_and_ends_with_it(tmp_path: Path, token_file: Path) -> None:
    port = free_port()
    said: list[str] = []
    options = {"coordinator": f"127.0.0.1:{port}", "token_file": str(token_file), "heartbeat_s": 0.1}
    request = job(
        "goes_on_when_told",
        "ab",
        tmp_path,
        options=options,
        about={"name": "told", "algorithm": "x", "topology": "y", "steps": 10},
        log_folder=tmp_path / "logs",
        on_output=lambda name, line: said.append(line),
    )
    running = Running(request)
    client = Client(f"http://127.0.0.1:{port}", TOKEN)

    def status() -> Any:
        try:
            run = client.get("/status")["run"]
        except Exception:
            return None
        return run if run and run["state"] == "running" and all(n["waits"] == [] for n in run["nodes"]) else None

    run = wait_for(status)
    assert (run["name"], run["steps"], run["world_size"]) == ("told", 10, 2)
    assert [(node["name"], node["rank"]) for node in run["nodes"]] == [("a", 0), ("b", 1)]
    with pytest.raises(NotAllowed, match="which does not take this token"):
        Client(f"http://127.0.0.1:{port}", "x" * 32).get("/status")
    (tmp_path / "go").touch()
    assert running.result().error is None
    assert said == [f"http://127.0.0.1:{port}"]
    with pytest.raises(UsageError, match="token_file"):
        read_options(ClusterJob(["a"], "{}", options={"coordinator": "127.0.0.1:0"}))
    texts = [path.read_text(errors="replace") for path in (tmp_path / "logs").iterdir()]
    assert not [text for text in texts if TOKEN in text or key_of(TOKEN).hex() in text]


def meet(service: CoordinatorService, token_file: Path, **secure: str) -> RunRecord:
    """Return the record of a run that a node has waited for at *service*."""
    codes: list[int] = []

    def node() -> None:
        codes.append(attend_with_files("b", service.url, token_file, None, None, secure.get("tls"), 60.0))

    thread = threading.Thread(target=node)
    thread.start()
    client = Client(service.url, TOKEN, **secure)
    wait_for(lambda: client.get("/training/ready")["ready"])
    options = {"coordinator": service.url, "token_file": str(token_file), **secure}
    record = run_cluster(job("ring", "ab", addresses=[None, ("127.0.0.1", 7000)], options=options))
    thread.join(60)
    assert record.error is None
    assert codes == [0]
    assert client.get("/status")["run"]["state"] == "done"
    return record


def test_a_node_that_is_there_first_finds_its_run_and_joins_by_the_key_that_the_token_makes(token_file: Path) -> None:
    desk = CoordinatorDesk(5.0, time.monotonic)
    service = CoordinatorService("127.0.0.1:0", TOKEN, desk)
    service.start()
    try:
        record = meet(service, token_file)
    finally:
        service.close()
    run, workers = desk.status()["run"], desk.status()["workers"]
    assert [node["state"] for node in run["nodes"]] == ["ended", "ended"]
    assert [(worker["name"], worker["rank"], worker["state"]) for worker in workers][1] == ("b", 1, "left")
    assert run["links"][0]["bytes"] == sum(node.bytes_sent for node in record.nodes)


def test_a_coordinator_that_is_not_there_is_warned_of_once_and_the_run_goes_on(
    token_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"coordinator": f"http://127.0.0.1:{free_port()}", "token_file": str(token_file), "heartbeat_s": 0.1}
    with caplog.at_level(logging.WARNING):
        assert run_cluster(job("ring", "ab", options=options)).error is None
    assert len([record for record in caplog.records if "no answer from the coordinator" in record.message]) == 1


def test_a_coordinator_that_comes_after_the_run_or_comes_back_is_told_what_it_missed(
    tmp_path: Path, token_file: Path
) -> None:
    where = f"127.0.0.1:{free_port()}"
    options = {"coordinator": f"http://{where}", "token_file": str(token_file), "heartbeat_s": 0.1}
    running = Running(job("goes_on_when_told", "ab", tmp_path, options=options, about={"name": "early"}))
    for _ in range(2):
        desk = CoordinatorDesk(5.0, time.monotonic)
        service = CoordinatorService(where, TOKEN, desk)
        service.start()
        run = wait_for(lambda: (found := desk.status()["run"]) and found["nodes"] and found)  # noqa: B023
        assert (run["name"], [node["name"] for node in run["nodes"]]) == ("early", ["a", "b"])
        service.close()
    (tmp_path / "go").touch()
    assert running.result().error is None


def test_a_run_that_failed_is_told_as_that(token_file: Path) -> None:
    desk = CoordinatorDesk(5.0, time.monotonic)
    service = CoordinatorService("127.0.0.1:0", TOKEN, desk)
    service.start()
    try:
        record = run_cluster(job("fails", "ab", options={"coordinator": service.url, "token_file": str(token_file)}))
    finally:
        service.close()
    assert record.error is not None
    assert not isinstance(record.error, PeerLost)
    assert desk.status()["run"]["error"] == str(record.error)


def test_a_token_is_one_long_word_that_only_its_owner_may_read(token_file: Path) -> None:
    assert read_token(token_file) == TOKEN
    for text in ("short", "two words " * 10, ""):
        token_file.write_text(text)
        with pytest.raises(UsageError, match="one word of at least 32 characters") as error:
            read_token(token_file)
        assert text == "" or text not in str(error.value)
    token_file.write_text(TOKEN)
    token_file.chmod(0o644)
    with pytest.raises(UsageError, match="0644, expected mode 0600"):
        read_token(token_file)


def test_a_port_in_use_and_an_address_without_a_name_are_refused(token_file: Path) -> None:
    desk = CoordinatorDesk(5.0, lambda: 0.0)
    service = CoordinatorService("127.0.0.1:0", TOKEN, desk)
    with pytest.raises(UsageError, match="is in use"):
        CoordinatorService(service.endpoint, TOKEN, desk)
    with pytest.raises(UsageError, match="--allow-host"):
        CoordinatorService("0.0.0.0:0", TOKEN, desk)
    service.close()


def test_failure_detection_is_never_slower_than_90_seconds() -> None:
    with pytest.raises(UsageError, match=r"dead_s: found 91, expected a number of seconds from 1e-06 to 90"):
        read_options(ClusterJob(["a"], "{}", options={"dead_s": 91}))
    assert read_options(ClusterJob(["a"], "{}"))[0].dead_s == 5.0


def test_a_coordinator_elsewhere_has_the_experiment_and_in_the_end_the_report(tmp_path: Path, token_file: Path) -> None:
    desk = CoordinatorDesk(60.0, time.monotonic)
    service = CoordinatorService("127.0.0.1:0", TOKEN, desk)
    service.start()
    try:
        run = simcluster.run(
            topology={"generator": "star", "workers": 2, "bandwidth": "1 Gbps", "latency": "1 us"},
            algorithm="edp", workload={"name": "quadratic"}, stop={"steps": 2}, backend="sockets",
            options={"coordinator": service.url, "token_file": str(token_file)}, out=tmp_path / "run",
        )  # fmt: skip
    finally:
        service.close()
    assert desk.report() == (tmp_path / "run" / "report.html").read_text()
    told = desk.config()
    assert yaml.safe_load(told["config"])["algorithm"]["name"] == "edp"
    assert told["folder"] == str(tmp_path / "run")
    assert desk.status()["has_report"]
    assert run.summary["status"] == "done"
