"""What nodes print is kept by name, in folders that are not left behind empty."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from simcluster_backends.sockets.launcher.logs import Logs
from simcluster_backends.sockets.node.process import _NodeRun
from simcluster_backends.sockets.wire.messages import PeerGone

from simcluster.errors import RunError


def test_a_name_is_a_file_name_whatever_is_in_it(tmp_path: Path) -> None:
    logs = Logs(tmp_path / "run" / "logs")
    logs.make()
    logs.append("../a b", "said \udcff")
    assert (tmp_path / "run" / "logs" / ".._a_b.log").read_text(errors="replace") == "said ?\n"
    assert Logs(None).file("a") is None


def test_what_nobody_wrote_into_is_taken_back_and_what_somebody_did_stays(tmp_path: Path) -> None:
    logs = Logs(tmp_path / "run" / "logs")
    logs.make()
    Path(logs.file("a") or "").touch()
    logs.forget()
    assert not (tmp_path / "run").exists()
    logs = Logs(tmp_path / "run" / "logs")
    logs.make()
    logs.append("a", "last words")
    logs.forget()
    assert (tmp_path / "run" / "logs" / "a.log").read_text() == "last words\n"


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="cannot make the log directory"):
        Logs(tmp_path / "file" / "logs").make()


def test_what_a_launcher_says_after_a_nodes_life_is_not_an_error() -> None:
    node = object.__new__(_NodeRun)
    node._loop = asyncio.new_event_loop()
    node._loop.close()
    node._leave = asyncio.Event()
    node._from_lane(PeerGone(1, "ended", 0))
    node._launcher_lost("it has ended, too")
