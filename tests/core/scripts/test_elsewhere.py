"""Scripts on nodes that ssh starts, and on processes here: code travels, prints and files come to the run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.backends.sockets.conftest import server as server
from tests.core.scripts.running import pair, printed, run_script
from tests.support.root import ROOT
from tests.support.sshd import Sshd

SCRIPT = """
import os
import sys

import torch
import torch.distributed as dist

from parts.model import width

dist.init_process_group("gloo")
total = torch.ones(width)
dist.all_reduce(total)
print("code", __file__, sys.argv[1:], total.sum().item(), flush=True)
if dist.get_rank() == 0 and sys.argv[1] == "writes":
    open("out.txt", "w").write("written")
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    code = tmp_path / "code"
    (code / "parts").mkdir(parents=True)
    (code / "parts" / "__init__.py").write_text("")
    (code / "parts" / "model.py").write_text("from .sizes import width\n")
    (code / "parts" / "sizes.py").write_text("width = 5\n")
    (code / "parts" / "unused.py").write_text("raise RuntimeError\n")
    (code / "script.py").write_text(SCRIPT)
    return code / "script.py"


@pytest.mark.slow
def test_on_other_machines_the_code_is_what_was_brought(script: Path, server: Sshd, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\ncd /\nPYTHONPATH={ROOT} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    topology = {
        "name": "shelf",
        "launch": {"python": str(python), "nproc_per_node": 2},
        "nodes": {"shelf": {"flops": "1 GFLOP/s", "ssh": server.host}},
    }
    said: list[tuple[str, str]] = []
    run_script(
        script, tmp_path / "run", topology, "a", "b", backend="sockets", options={"ssh_config": str(server.config)},
        on_output=lambda *line: said.append(line),
    )  # fmt: skip
    for name in ("shelf_0", "shelf_1"):
        (line,) = [line for node, line in said if node == name and line.startswith("code")]
        assert line.endswith(f"{script} ['a', 'b'] 10.0")
        assert "simcluster-" in line, "below a directory of the launcher's, which is gone"


@pytest.mark.slow
def test_real_nodes_here_print_to_their_logs_rank_0_on_the_terminal_and_write_to_the_run(
    script: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_script(script, tmp_path / "run", pair(), "writes", backend="sockets")
    line = f"code {script} ['writes'] 10.0"
    assert [line for node in "ab" for line in printed(tmp_path / "run", node) if line.startswith("code")] == [line] * 2
    assert capsys.readouterr().err.count(line) == 1
    (written,) = (tmp_path / "run" / "files").rglob("*.*")
    assert written.name == "out.txt"
    assert not (tmp_path / "out.txt").exists()
