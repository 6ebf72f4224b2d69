"""A pane for each node, in a real tmux: it shows what is in the log, and is gone afterwards."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from pathlib import Path

import pytest
from simcluster_backends.sockets.launcher import logs
from simcluster_backends.sockets.launcher.settings import read_options

from simcluster.errors import LaunchFailed, UsageError
from simcluster.job import ClusterJob
from tests.support.socket_runs import wait_for

needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="no tmux here: apt-get install tmux")


@pytest.fixture(autouse=True)
def own_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMUX_TMPDIR", str(tmp_path))
    monkeypatch.delenv("TMUX", raising=False)


def ask(*words: str) -> str:
    return subprocess.run(["tmux", *words], capture_output=True, text=True).stdout


@needs_tmux
def test_every_node_has_a_pane_that_follows_its_log_until_the_end(tmp_path: Path) -> None:
    files = {name: str(tmp_path / f"the log of {name}.log") for name in ("mini1", "mini2", "pi5")}
    panes = logs.Panes(files)
    asyncio.run(panes.open())
    try:
        assert ask("list-panes", "-t", panes.session, "-F", "#{pane_title}").split() == ["mini1", "mini2", "pi5"]
        with open(files["mini2"], "a") as log:
            log.write("step 7\n")
        wait_for(lambda: "step 7" in ask("capture-pane", "-p", "-t", f"{panes.session}.1"))
    finally:
        asyncio.run(panes.close())
    assert ask("list-sessions") == ""


@needs_tmux
def test_what_tmux_says_is_told_if_it_will_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "FOLLOW", "")
    panes = logs.Panes({"a": str(tmp_path / "a.log")})
    panes.session = "not:a name"
    with pytest.raises(LaunchFailed, match="no panes can be shown"):
        asyncio.run(panes.open())
    asyncio.run(panes.close())


def test_without_tmux_the_request_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UsageError, match="no tmux on this machine"):
        read_options(ClusterJob(["a"], "{}", options={"tmux": True}))
