"""What a machine does with what its nodes print, and with an order that would leave its folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from simcluster_backends.sockets.launcher.machine_messages import (
    MachineReport,
    StartOrder,
    fingerprint,
    line_of,
    read_from_machine,
)
from simcluster_backends.sockets.launcher.remote_agent import LINE_BYTES, Pipe

from tests.support.socket_runs import ROOT


def test_lines_are_passed_on_as_they_come_long_ones_in_pieces_the_last_one_at_the_end(tmp_path: Path) -> None:
    said: list[str] = []
    pipe = Pipe(tmp_path / "pipe", said.append)
    pipe.read()  # nothing is there yet, and nobody waits
    with open(tmp_path / "pipe", "wb", buffering=0) as node:
        node.write(b"one\ntw")
        pipe.read()
        assert said == ["one"]
        node.write(b"o\r\n\n" + b"x" * (LINE_BYTES + 5) + b"\n\xff last")
        pipe.read()
    pipe.close()
    assert said == ["one", "two", "", "x" * LINE_BYTES, "x" * 5, "\ufffd last"]


@pytest.mark.slow
def test_an_order_that_would_write_elsewhere_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    order = line_of(StartOrder("127.0.0.1:1", "00" * 32, [], {"/a/../../b.py": b""}, {}))
    done = subprocess.run(
        [sys.executable, "-m", "simcluster", "node", "a", "--launched"],
        cwd=ROOT,
        input=b"not an order\n" + order,
        capture_output=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert done.returncode == 1
    assert [read_from_machine(line) for line in done.stdout.splitlines()] == [MachineReport(fingerprint())]
    assert b"not the absolute path" in done.stderr
    assert list(tmp_path.iterdir()) == []
