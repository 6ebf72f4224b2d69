"""Ctrl-C while a run folder is written: one run or the other, whole, and nothing half-written."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from simcluster.paths import inside
from simcluster.results import load_run
from simcluster.runs.write import write_run
from simcluster.topology import load
from tests.support.made_up_runs import made_up_config, made_up_run, topology_document
from tests.tools.test_interrupt import default_sigint as default_sigint

TOPOLOGY = load(topology_document())


def write(folder: Path, seed: int) -> None:
    write_run(folder, made_up_config(seed=seed), TOPOLOGY, made_up_run(), "0.1.0")


def pressed_at(call: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return *function* with a Ctrl-C before its *call*-th call."""
    calls = iter(range(1, 1000))

    def press(*arguments: Any) -> Any:
        if next(calls) == call:
            signal.raise_signal(signal.SIGINT)
        return function(*arguments)

    return press


@pytest.mark.parametrize(("function", "call", "left"), [("stage", 2, 1), ("put", 2, 2), ("put", 4, 2)])
def test_ctrl_c_leaves_the_earlier_run_or_the_new_one_whole(
    function: str, call: int, left: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, seed=1)
    monkeypatch.setattr(inside, function, pressed_at(call, getattr(inside, function)))
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path, seed=2)
    run = load_run(tmp_path)
    assert {run.summary["seed"], run.config["seed"], run.trace["otherData"]["seed"]} == {left}
    assert list(tmp_path.rglob(f"{inside.PARTIAL}*")) == []


def test_an_end_between_two_renames_leaves_no_run_that_reads_as_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        """Stands for a process that is not there any more."""

    def put(*arguments: Any) -> None:
        if (tmp_path / ".partial-config.yaml").exists():
            kept(*arguments)
            return
        raise Killed

    write(tmp_path, seed=1)
    kept = inside.put
    monkeypatch.setattr(inside, "put", put)
    with pytest.raises(Killed):
        write(tmp_path, seed=2)
    assert not (tmp_path / "summary.json").exists()
