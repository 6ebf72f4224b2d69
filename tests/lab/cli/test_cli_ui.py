"""The command `simcluster ui`: what it refuses before it listens, and how it begins and ends."""

from __future__ import annotations

import http.client
import importlib.util
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import msgspec
import psutil
import pytest
from typer.testing import CliRunner

from simcluster.cli.app import app
from simcluster.errors import UsageError
from simcluster.process.installed import install_extra
from tests.support.levels import sample_of
from tests.support.root import ROOT
from tests.support.socket_runs import wait_for


def refused(*words: str) -> str:
    found = CliRunner().invoke(app, ["ui", *words])
    assert isinstance(found.exception, UsageError), found.output
    return str(found.exception)


def test_off_loopback_it_wants_tls_or_a_word_that_it_goes_without(tmp_path: Path) -> None:
    assert "expected --tls FOLDER, an address on loopback, or --plain-http" in refused(
        str(tmp_path / "runs"), "--host", "10.1.2.3"
    )
    assert not (tmp_path / "runs").exists()


def test_what_it_cannot_serve_or_listen_at_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "expected a folder, or a name that is free" in refused(str(tmp_path / "file"))
    assert f"but {tmp_path / 'file'} is a file" in refused(str(tmp_path / "file" / "runs"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "is in use" in refused(str(tmp_path / "runs"), "--port", str(taken.getsockname()[1]))


def test_without_the_extra_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find: Any = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "uvicorn" else find(name))
    assert f"no uvicorn, expected it to be installed: {install_extra('api')}" in refused(str(tmp_path / "runs"))


@pytest.mark.slow
def test_it_prints_its_address_and_a_link_and_ends_by_ctrl_c(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "simcluster", "ui", str(tmp_path / "runs"), "--port", "0", "--login"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        where, link = process.stdout.readline().split()[-1], process.stdout.readline().split()[-1]
        assert link.startswith(f"{where}#/login/")
        connection = http.client.HTTPConnection(where.split("/")[2])
        connection.request("GET", "/")
        assert connection.getresponse().status == 200
        connection.close()
        process.send_signal(signal.SIGINT)
        process.communicate()
    assert process.returncode == 130


def test_a_folder_that_is_absent_is_named(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "simcluster", "ui", str(tmp_path / "nosuch"), "--port", "0"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == f"note: no folder {tmp_path / 'nosuch'}; an empty one is made\n"
        process.kill()


@pytest.mark.slow
@pytest.mark.parametrize("number", sample_of([signal.SIGKILL, signal.SIGTERM, signal.SIGHUP]))
def test_its_runs_end_with_it_whichever_signal_ends_it(tmp_path: Path, number: signal.Signals) -> None:
    argv = [sys.executable, "-m", "simcluster", "ui", str(tmp_path), "--port", "0"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        where = process.stdout.readline().split()[-1].rstrip("/")
        wanted = {"experiment": "quickstart", "sets": ["stop.steps=1000000"], "folder": "long"}
        httpx.post(f"{where}/api/start", json=wanted, headers={"Origin": where}, timeout=60).raise_for_status()
        live = tmp_path / "long" / "live.json"
        wait_for(live.is_file)
        run = psutil.Process(msgspec.json.decode(live.read_bytes())["pid"])
        process.send_signal(number)
        run.wait(60)
    assert not live.exists(), "it ended as by Ctrl-C"
