"""What every test gets: one torch thread, as every node of a run has; laws that no busy machine can break; and the
command."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from simcluster.cli import app as cli
from simcluster.process.intra_op import one_thread

# How long an example takes says something about the machine, not about the law. The same examples every time, so that
# a change is judged by what it changed; HYPOTHESIS_PROFILE=search looks for new ones.
settings.register_profile("search", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", settings.get_profile("search"), derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

# A shell lets its background jobs ignore Ctrl-C, and what they start inherits that, also what tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Keep the garbage collector off 6,000 tests: walking them held up the launchers in this process for seconds."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def one_torch_thread() -> Iterator[None]:
    with one_thread():
        yield


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Runs the command in an empty folder; returns (exit code, standard output, standard error)."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["simcluster", *arguments])
        try:
            cli.main()
            code = 0
        except SystemExit as leave:
            code = int(leave.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run
