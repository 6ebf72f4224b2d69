"""Whoever is killed, no process of a run stays behind; and the key of a run is nowhere to be seen."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from simcluster_backends import sockets
from simcluster_backends.sockets import generate_key, write_key
from simcluster_backends.sockets.launcher.fork_server import ForkServer
from simcluster_backends.torch import starting
from typer.testing import CliRunner

from simcluster.cli.app import app
from simcluster.cli.terminal.options import start_early
from simcluster.errors import UsageError
from tests.support.socket_runs import ROOT, Running, free_port, gone, hand_started, job, pids_in, wait_for


@contextmanager
def launched(program: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A launcher in a process of its own, which is killed at the end, whatever the test found."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.launch_script", program, str(folder)],
        cwd=ROOT,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background job ignores it
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_fork_server_without_nodes_is_killed_since_it_may_still_be_importing_torch() -> None:
    server = ForkServer()
    server.close()
    assert server._process.returncode == -signal.SIGKILL


@pytest.mark.parametrize(
    ("backend", "options", "starts"),
    [
        ("sockets", {}, True),
        ("sockets", {"rendezvous": "127.0.0.1:52300"}, False),
        ("sockets", {"coordinator": "https://127.0.0.1:52400"}, False),
        ("sim", {}, False),
        (None, {}, False),
    ],
)
def test_a_command_whose_nodes_may_start_here_starts_their_fork_server_first(
    backend: str | None, options: dict[str, str], starts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[bool] = []
    monkeypatch.setattr(sockets, "get_ready", lambda: begun.append(True))
    start_early(backend, options)
    assert begun == [True] * starts


@pytest.mark.parametrize(
    "command",
    [
        ["run", "quickstart", "--set", "stop.steps=-1"],
        ["resume", "no-such-run"],
        ["generate", "no-such-topology", "--model", "smollm2", "--prompt", "Hello"],
    ],
    ids=lambda command: str(command[0]),
)
def test_the_fork_server_starts_before_a_command_finds_what_is_wrong(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[bool] = []
    monkeypatch.setattr(sockets, "get_ready", lambda: begun.append(True))
    with pytest.raises(UsageError):
        CliRunner().invoke(app, [*command, "--backend", "sockets"], catch_exceptions=False)
    assert begun == [True]


LOADS = {
    "the fork server": "from simcluster_backends.sockets.launcher.fork_process import _load; _load()",
    "a rank of torch": starting._BOOT.removesuffix("live()"),
}


@pytest.mark.slow
@pytest.mark.parametrize("code", LOADS.values(), ids=LOADS)
def test_no_garbage_is_looked_for_while_a_started_process_imports_torch(code: str) -> None:
    count = "import gc, sys; looks = []; gc.callbacks.append(lambda *_: looks.append('torch' in sys.modules))\n"
    check = "\nassert 'torch' in sys.modules and gc.isenabled() and not any(looks), sum(looks)"
    subprocess.run([sys.executable, "-c", count + code + check], check=True, cwd=ROOT)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "how"),
    [
        ("busy_forever", signal.SIGKILL),
        ("forever", signal.SIGINT),
    ],
)
def test_when_the_launcher_is_killed_its_nodes_end(program: str, how: signal.Signals, tmp_path: Path) -> None:
    with launched(program, tmp_path) as launcher:
        pids = pids_in(tmp_path, "ab")
        family = [child.pid for child in psutil.Process(launcher.pid).children(recursive=True)]
        assert set(pids.values()) <= set(family)
        launcher.send_signal(how)
        launcher.wait()
    wait_for(lambda: all(gone(pid) for pid in family))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "words"),
    [
        # Its loop never runs again, so its control lane's thread has to end it.
        ("busy_forever", "the launcher is gone and the algorithm does not end: exiting"),
        # A launcher that is killed with a heartbeat unread resets the connection.
        ("forever", r"the launcher is gone: (the connection was closed by the peer|ConnectionResetError: .*)"),
    ],
)
def test_nodes_end_and_say_so_when_their_launcher_is_gone_even_without_the_fork_server(
    program: str, words: str, tmp_path: Path
) -> None:
    key_file, port = tmp_path / "key", free_port()
    write_key(key_file, generate_key())
    script = (
        "import json, sys; from simcluster_backends.sockets import run_cluster; "
        "from simcluster.job import ClusterJob; "
        "run_cluster(ClusterJob(['a'], json.dumps({'folder': sys.argv[1]}), addresses=[('127.0.0.1', 1)], "
        f"program='tests.support.node_programs:{program}', "
        "options={'rendezvous': sys.argv[2], 'key_file': sys.argv[3]}))"
    )
    where = f"127.0.0.1:{port}"
    with (
        subprocess.Popen([sys.executable, "-c", script, str(tmp_path), where, str(key_file)], cwd=ROOT) as launcher,
        hand_started("a", where, key_file) as node,
    ):
        pids_in(tmp_path, "a")
        launcher.kill()
        said, _ = node.communicate()
        assert re.fullmatch(words, said.decode().strip())
        assert node.returncode == 1


@pytest.mark.slow
def test_a_run_outlives_the_process_that_started_its_nodes(tmp_path: Path) -> None:
    running = Running(job("goes_on_when_told", "ab", folder=tmp_path))
    pids = pids_in(tmp_path, "ab")
    server = psutil.Process(pids["a"]).ppid()
    os.kill(server, signal.SIGKILL)
    wait_for(lambda: gone(server))
    (tmp_path / "go").touch()
    record = running.result()
    assert record.error is None
    assert [node.weights_sha256 for node in record.nodes] == ["whole", "whole"]
    wait_for(lambda: all(gone(pid) for pid in pids.values()))
    assert Running(job("ring", "ab")).result().error is None, "the next run has a new one"


@pytest.mark.slow
def test_nodes_without_their_fork_server_are_killed_all_the_same(tmp_path: Path) -> None:
    running = Running(job("busy_forever", "ab", folder=tmp_path, options={"limit_s": 1.0}))
    pids = pids_in(tmp_path, "ab")
    os.kill(psutil.Process(pids["a"]).ppid(), signal.SIGKILL)
    assert "limit_s" in str(running.result().error)
    # They never let go of their loop and nobody reaps them: the launcher itself has to end them.
    wait_for(lambda: all(gone(pid) for pid in pids.values()))


@pytest.mark.slow
def test_when_launcher_and_fork_server_are_killed_the_nodes_end_themselves(tmp_path: Path) -> None:
    with launched("busy_forever", tmp_path) as launcher:
        pids = pids_in(tmp_path, "ab")
        server = psutil.Process(pids["a"]).ppid()
        os.kill(server, signal.SIGKILL)
        launcher.kill()
        launcher.wait()
    wait_for(lambda: all(gone(pid) for pid in [server, *pids.values()]))


@pytest.mark.slow
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
