"""Whole runs over processes: how they end well, how they end badly, and that no process ever stays."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import Any

import psutil
import pytest

from backends.sockets import generate_key, join, launch, run_cluster, write_key
from backends.sockets.control import Failure
from backends.sockets.listener import open_socket
from backends.sockets.member import Verdict
from simcluster.errors import HandshakeRefused, NeverFinished, NodeFailed, PeerLost, RunError, UsageError
from simcluster.experiment.fault_kinds import Crash
from simcluster.experiment.job import ClusterJob
from simcluster.results.record import RunRecord

ROOT = Path(__file__).parent.parent


def job(program: str, names: str = "abc", folder: Path | None = None, **settings: Any) -> ClusterJob:
    config = json.dumps({"folder": str(folder), "mark": "m"})
    return ClusterJob(list(names), config, program=f"tests.node_programs:{program}", **settings)


def wait_for(what: Callable[[], Any], limit_s: float = 30.0) -> Any:
    """The first true value of *what*."""
    end_s = time.monotonic() + limit_s
    while not (value := what()):
        assert time.monotonic() < end_s, "waited for too long"
        time.sleep(0.02)
    return value


def pids_in(folder: Path, names: str) -> dict[str, int]:
    """The process ids of all nodes called *names*, once each of them has written its own."""

    def read() -> dict[str, int] | None:
        texts = {name: folder / f"{name}.pid" for name in names}
        pids = {name: file.read_text() for name, file in texts.items() if file.exists()}
        return {name: int(pid) for name, pid in pids.items()} if all(map(pids.get, names)) else None

    return dict(wait_for(read))


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


class Running:
    """A run in a thread, so that the test can do something to it meanwhile."""

    def __init__(self, request: ClusterJob) -> None:
        self.record: RunRecord | None = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(request,))
        self._thread.start()

    def _run(self, request: ClusterJob) -> None:
        try:
            self.record = run_cluster(request)
        except BaseException as error:
            self.error = error

    def result(self, limit_s: float = 30.0) -> RunRecord:
        self._thread.join(limit_s)
        assert not self._thread.is_alive(), "the run hangs"
        if self.error is not None:
            raise self.error
        assert self.record is not None
        return self.record


@contextmanager
def hand_started(name: str, rendezvous: str, key_file: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`simcluster node` by hand, in a process of its own."""
    code = (
        "import sys; from pathlib import Path; from backends.sockets import join, read_key; "
        "sys.exit(join(sys.argv[1], sys.argv[2], read_key(Path(sys.argv[3]))))"
    )
    command = [sys.executable, "-c", code, name, rendezvous, str(key_file)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            yield process
        finally:
            process.kill()


def free_port() -> int:
    with open_socket("127.0.0.1", 0, "test") as listening:
        return int(listening.getsockname()[1])


# runs that end well


@pytest.mark.parametrize("uvloop", [False, True])
@pytest.mark.parametrize("names", ["a", "abcd"])
def test_a_run_brings_home_the_record_of_every_node(names: str, uvloop: bool, tmp_path: Path) -> None:
    seen: dict[int, int] = {}
    record = run_cluster(
        job("ring", names, log_folder=tmp_path, on_progress=seen.__setitem__, options={"uvloop": uvloop})
    )
    total = float(sum(range(len(names))))
    assert record.error is None
    assert [(node.rank, node.name) for node in record.nodes] == list(enumerate(names))
    for node in record.nodes:
        assert node.weights_sha256 == f"m-{total}"
        assert [(row.node, row.step, row.name, row.value) for row in node.metrics] == [(node.name, 1, "total", total)]
        # One piece of work; then each of the n - 1 rounds sends and receives once.
        assert len(node.spans) == 1 + 2 * (len(names) - 1)
        assert node.messages_sent == len(names) - 1
        assert node.bytes_sent == node.bytes_received
        assert node.control_bytes > 0
        assert node.digest
        assert node.finished_s is not None
    assert record.elapsed_s == max(node.finished_s or 0.0 for node in record.nodes)
    assert record.wall_s >= record.elapsed_s
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{name}.log" for name in names]


def test_a_run_can_be_started_where_a_loop_runs_already() -> None:
    async def notebook() -> RunRecord:
        return run_cluster(job("ring", "ab"))

    assert asyncio.run(notebook()).error is None


def test_a_planned_crash_that_the_algorithm_bears_is_no_error() -> None:
    record = run_cluster(job("tolerant", faults=(Crash(spells=((0.2, inf),), rank=2),)))
    assert record.error is None
    assert record.extra["lost"] == {"c": "crashed by the fault plan"}
    assert record.nodes[0].weights_sha256 == "survived"
    assert [row.value for row in record.nodes[0].metrics if row.name == "lost"] == [2.0]
    assert record.nodes[1].metrics[-1].step == 39
    assert record.nodes[2].finished_s is None


def test_a_node_started_by_hand_joins_one_that_was_not(tmp_path: Path) -> None:
    key_file, port = tmp_path / "key", free_port()
    write_key(key_file, generate_key())
    options = {"rendezvous": f"127.0.0.1:{port}", "key_file": str(key_file)}
    with hand_started("b", f"127.0.0.1:{port}", key_file) as process:
        record = run_cluster(job("ring", "ab", addresses=[None, ("127.0.0.1", 7000)], options=options))
        assert process.wait(20) == 0
    assert record.error is None
    assert [node.weights_sha256 for node in record.nodes] == ["m-1.0", "m-1.0"]


# runs that end badly


def test_a_killed_worker_is_the_error_and_nothing_is_left(tmp_path: Path) -> None:
    running = Running(job("forever", folder=tmp_path))
    pids = pids_in(tmp_path, "abc")
    wait_for(lambda: all((tmp_path / f"{name}.pid").exists() for name in "abc"))
    time.sleep(0.6)  # past a heartbeat, so that there are metrics to keep
    os.kill(pids["b"], signal.SIGKILL)
    record = running.result()
    assert isinstance(record.error, PeerLost)
    assert (record.error.rank, record.error.name) == (1, "b")
    assert all(gone(pid) for pid in pids.values())
    assert all(node.metrics for node in record.nodes), "what was noted before the loss must be kept"
    assert record.nodes[1].sent_to, "what the dead node had sent must be kept"


def test_a_worker_that_falls_silent_is_lost(tmp_path: Path) -> None:
    running = Running(job("forever", folder=tmp_path, options={"heartbeat_s": 0.1, "dead_s": 1.0}))
    pids = pids_in(tmp_path, "abc")
    os.kill(pids["c"], signal.SIGSTOP)  # alive, connected, and as good as dead
    record = running.result()
    assert isinstance(record.error, PeerLost)
    assert record.error.rank == 2
    assert "silent for 1 s" in record.error.reason
    assert all(gone(pid) for pid in pids.values())


def test_a_node_that_is_only_busy_is_not_taken_for_dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "STOP_S", 0.3)
    running = Running(job("busy_forever", folder=tmp_path, options={"heartbeat_s": 0.1, "dead_s": 0.5, "limit_s": 1.5}))
    pids = pids_in(tmp_path, "abc")
    record = running.result()
    assert isinstance(record.error, NeverFinished)
    assert "did not finish within 1.5 s" in str(record.error)
    assert len(record.error.waits) == 3
    assert all(gone(pid) for pid in pids.values()), "a node that never lets go of its loop is killed"


def test_a_bug_in_one_node_is_the_error_not_the_losses_it_causes() -> None:
    record = run_cluster(job("fails"))
    assert isinstance(record.error, NodeFailed)
    assert (record.error.rank, record.error.name) == (1, "b")
    assert "LookupError: the bug of rank 1" in str(record.error)
    assert "Traceback" in record.error.details
    assert [node.metrics[0].value for node in record.nodes] == [0.0, 1.0, 2.0]


def test_a_program_that_is_not_there_is_said_to_be_missing() -> None:
    record = run_cluster(job("no_such_program", "a"))
    assert isinstance(record.error, NodeFailed)
    assert "no_such_program" in str(record.error)


def test_a_run_in_which_everybody_waits_lists_who_waits_for_what() -> None:
    record = run_cluster(job("waits_for_nothing", options={"stuck_s": 0.3, "heartbeat_s": 0.1}))
    assert isinstance(record.error, NeverFinished)
    assert record.error.waits == [
        "rank 0 (a) waits for recv(source=1, tag='never')",
        "rank 1 (b) waits for recv(source=2, tag='never')",
        "rank 2 (c) waits for recv(source=0, tag='never')",
    ]


def test_nodes_that_do_not_come_are_named_with_those_who_were_turned_away(tmp_path: Path) -> None:
    key_file, port = tmp_path / "key", free_port()
    write_key(key_file, generate_key())
    options = {"rendezvous": f"127.0.0.1:{port}", "key_file": str(key_file), "start_s": 2.0}
    running = Running(job("ring", "ab", addresses=[None, ("127.0.0.1", 7000)], options=options))
    with pytest.raises(HandshakeRefused, match="authentication failed"):
        join("b", f"127.0.0.1:{port}", generate_key())
    with pytest.raises(HandshakeRefused, match=r"no node 'bb' in this run; did you mean 'b'\?"):
        join("bb", f"127.0.0.1:{port}", bytes.fromhex(key_file.read_text()))
    error = running.result().error
    assert isinstance(error, NeverFinished)
    assert error.waits[0] == "rank 1 (b) has not joined"
    assert any("authentication failed" in line for line in error.waits[1:])
    assert any("no node 'bb'" in line for line in error.waits[1:])


def test_a_name_that_is_taken_is_refused(tmp_path: Path) -> None:
    key_file, port = tmp_path / "key", free_port()
    write_key(key_file, generate_key())
    options = {"rendezvous": f"127.0.0.1:{port}", "key_file": str(key_file)}
    running = Running(job("goes_on_when_told", "ab", folder=tmp_path, options=options))
    pids_in(tmp_path, "ab")
    with pytest.raises(HandshakeRefused, match="the name 'a' is taken"):
        join("a", f"127.0.0.1:{port}", bytes.fromhex(key_file.read_text()))
    (tmp_path / "go").touch()
    assert running.result().error is None


def test_garbage_at_every_port_does_not_disturb_a_run(tmp_path: Path) -> None:
    port = free_port()
    running = Running(job("goes_on_when_told", "ab", folder=tmp_path, options={"rendezvous": f"127.0.0.1:{port}"}))
    pids = pids_in(tmp_path, "ab")
    listening = {
        connection.laddr.port
        for pid in pids.values()
        for connection in psutil.Process(pid).net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    }
    assert len(listening) == 2
    silent = []
    for target in [port, *listening]:
        for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"simc" + b"\xff" * 500, os.urandom(1000)):
            with socket.create_connection(("127.0.0.1", target), timeout=10) as client:
                client.sendall(garbage)
                try:
                    while client.recv(1000):
                        pass
                except ConnectionResetError:
                    pass
        silent.append(socket.create_connection(("127.0.0.1", target)))
    (tmp_path / "go").touch()
    record = running.result()
    for client in silent:
        client.close()
    assert record.error is None
    assert [node.weights_sha256 for node in record.nodes] == ["whole", "whole"]


def test_a_rendezvous_port_in_use_is_refused_by_its_number() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"rendezvous: found 127.0.0.1:{port} .port {port} is in use."):
            run_cluster(job("ring", "ab", options={"rendezvous": f"127.0.0.1:{port}"}))


# nothing stays, and the key is nowhere


@pytest.mark.parametrize(
    ("program", "how"),
    [
        ("forever", signal.SIGKILL),
        ("forever", signal.SIGTERM),
        ("forever", signal.SIGINT),
        ("busy_forever", signal.SIGKILL),
    ],
)
def test_when_the_launcher_is_killed_its_nodes_end(program: str, how: signal.Signals, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.launch_script", program, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL) as launcher:
        pids = pids_in(tmp_path, "ab")
        family = [child.pid for child in psutil.Process(launcher.pid).children(recursive=True)]
        assert set(pids.values()) <= set(family)
        launcher.send_signal(how)
        launcher.wait(20)
    wait_for(lambda: all(gone(pid) for pid in family), limit_s=10.0)


def test_nodes_end_when_their_launcher_is_gone_even_without_the_fork_server(tmp_path: Path) -> None:
    key_file, port = tmp_path / "key", free_port()
    write_key(key_file, generate_key())
    code = (
        "import json, sys; from backends.sockets import run_cluster; "
        "from simcluster.experiment.job import ClusterJob; "
        "run_cluster(ClusterJob(['a'], json.dumps({'folder': sys.argv[1]}), addresses=[('127.0.0.1', 1)], "
        "program='tests.node_programs:busy_forever', "
        "options={'rendezvous': sys.argv[2], 'key_file': sys.argv[3]}))"
    )
    where = f"127.0.0.1:{port}"
    with (
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path), where, str(key_file)], cwd=ROOT) as launcher,
        hand_started("a", where, key_file) as node,
    ):
        pids_in(tmp_path, "a")
        launcher.kill()
        # Its loop never runs again, so its control lane's thread has to end it.
        assert node.wait(20) == 1


def test_the_key_is_in_no_command_line_environment_or_log(tmp_path: Path) -> None:
    key_file, logs = tmp_path / "key", tmp_path / "logs"
    write_key(key_file, generate_key())
    running = Running(
        job("goes_on_when_told", "ab", folder=tmp_path, log_folder=logs, options={"key_file": str(key_file)})
    )
    pids_in(tmp_path, "ab")
    key = key_file.read_text().strip()
    family = psutil.Process().children(recursive=True)
    shown = "".join(str(process.cmdline()) + str(process.environ()) for process in family)
    (tmp_path / "go").touch()
    assert running.result().error is None
    assert len(family) >= 3  # the fork server and two nodes
    assert key not in shown + "".join(path.read_text() for path in logs.iterdir())


# which error it was


def peer_lost(rank: int) -> Failure:
    return Failure("peer_lost", "the connection was closed", rank)


def test_the_verdict_is_the_death_even_if_survivors_reported_first() -> None:
    verdict = Verdict(list("abcd"))
    verdict.failed(0, peer_lost(2))
    verdict.failed(1, peer_lost(0))
    verdict.died(2, "its process is gone")
    assert isinstance(verdict.error, PeerLost)
    assert (verdict.error.rank, verdict.error.reason) == (2, "its process is gone")


def test_the_verdict_on_a_planned_crash_is_clean_unless_somebody_needed_the_dead() -> None:
    verdict = Verdict(list("abcd"), planned={2})
    verdict.died(2, "crashed by the fault plan")
    assert verdict.error is None
    verdict.failed(1, peer_lost(0))
    verdict.failed(0, peer_lost(2))
    assert isinstance(verdict.error, PeerLost)
    assert (verdict.error.rank, verdict.error.reason) == (2, "crashed by the fault plan")


def test_the_verdict_prefers_a_bug_to_the_losses_it_causes() -> None:
    verdict = Verdict(list("abcd"))
    verdict.failed(0, peer_lost(1))
    verdict.failed(1, Failure("failed", "ValueError: x", details="Traceback\nValueError: x"))
    assert isinstance(verdict.error, NodeFailed)
    assert verdict.error.rank == 1


def test_the_verdict_on_somebody_who_waits_for_a_peer_that_ended_well_is_that_loss() -> None:
    verdict = Verdict(list("ab"))
    verdict.failed(0, Failure("peer_lost", "ended its algorithm", 1))
    assert isinstance(verdict.error, PeerLost)
    assert verdict.error.reason == "ended its algorithm"


def test_the_verdict_on_those_who_were_stopped_is_nothing() -> None:
    verdict = Verdict(list("ab"))
    verdict.failed(0, Failure("stopped", "the run has failed"))
    assert verdict.error is None
    verdict.failed(1, Failure("start", "no answer"))
    assert isinstance(verdict.error, RunError)
    assert "rank 1 (b) could not start: no answer" in str(verdict.error)


@pytest.mark.parametrize("missing", [False, True])
def test_a_program_prepares_before_the_clock_starts(missing: bool) -> None:
    program = "tests.prepared_program:needs_it"
    record = run_cluster(ClusterJob(list("ab"), json.dumps({"missing": missing}), program=program))
    if missing:  # on a node's own machine, say, which nobody could check before
        assert "could not start: " in str(record.error)
        assert "the data on every node" in str(record.error)
    else:
        assert record.error is None
        assert [node.weights_sha256 for node in record.nodes] == ["prepared", "prepared"]
