"""The directory of a run that begins: a new one each time, and a link to the last one."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

import simcluster
from simcluster.errors import UsageError
from simcluster.lab.ui.shelf import RunShelf
from simcluster.paths.last_run import each_once, last_run
from simcluster.runs.home import MOST_CHANGED, RunHome

FACTS = ("quickstart", "sync_ps", "sim", 0)
LAST = Path("runs/quickstart-sync_ps-sim-seed0")
SHORT: dict[str, Any] = {"stop": {"steps": 2}, "report": False}


@pytest.fixture(autouse=True)
def _inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "summary.json").write_text("{}")
    return folder


def one_run(**changed: Any) -> Path:
    with RunHome(None, changed) as home:
        return write(home(*FACTS))


def test_a_second_run_keeps_the_first_and_the_old_name_leads_to_the_last() -> None:
    first = simcluster.run("quickstart", **SHORT)
    second = simcluster.run("quickstart", **SHORT | {"stop": {"steps": 3}})
    assert (first.folder.name, second.folder.name) == (f"{LAST.name}-steps_2-1", f"{LAST.name}-steps_3-1")
    assert first.metrics["step"].max() == 2  # read after the second one
    assert simcluster.load_run(LAST).folder == second.folder
    assert [row["id"] for row in RunShelf(Path("runs")).rows()] == [second.folder.name, first.folder.name]
    assert each_once(sorted(Path("runs").iterdir())) == sorted([first.folder, second.folder])


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({}, ""),
        ({"stop.steps": 4, "topology.links.a-b.bandwidth": "100 Mbps"}, "-steps_4-bandwidth_100Mbps"),
        ({"topology.nodes.pi4.straggler": {"kind": "constant", "factor": 10}}, "-straggler"),
        ({"topology": "my/shelf.yaml", "workload": print}, "-topology_shelf.yaml-workload"),
        ({"a": "../.." * 99}, "-a"),
        ({"a" * 99: 1}, "-" + "a" * MOST_CHANGED),
    ],
)
def test_a_name_tells_the_changes_in_few_characters(changed: dict[str, Any], words: str) -> None:
    assert [one_run(**changed).name for _ in range(2)] == [f"{LAST.name}{words}-{number}" for number in (1, 2)]


def test_runs_that_begin_at_once_have_a_directory_each() -> None:
    ready, found = threading.Barrier(8), []

    def begin() -> None:
        ready.wait()
        found.append(one_run())

    threads = [threading.Thread(target=begin) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [LAST.with_name(f"{LAST.name}-{number}") for number in range(1, 9)]
    assert last_run(LAST) in found


def test_a_run_that_writes_nothing_leaves_nothing() -> None:
    def refused() -> None:
        with pytest.raises(UsageError, match="batch_size"):
            simcluster.run("quickstart", algorithm=one_run_of_mine, overrides={"workload.batch_size": 0})

    refused()
    assert not os.path.lexists("runs")
    earlier = one_run()
    refused()
    assert sorted(os.listdir("runs")) == [LAST.name, earlier.name]
    with pytest.raises(KeyboardInterrupt), RunHome(None, {}) as home:
        (home(*FACTS) / "logs").mkdir()
        assert last_run(LAST) != earlier
        raise KeyboardInterrupt
    assert last_run(LAST) == earlier


async def one_run_of_mine(node: Any, replica: Any) -> None:
    """Do nothing."""


def test_a_directory_with_the_old_name_is_numbered_unless_its_run_is_not_finished(
    caplog: pytest.LogCaptureFixture,
) -> None:
    (write(LAST) / "notes.txt").write_text("mine")
    assert one_run().name == f"{LAST.name}-2"
    assert (LAST.with_name(f"{LAST.name}-1") / "notes.txt").read_text() == "mine"
    assert "its old name leads to the last run" in caplog.text
    os.unlink(LAST)
    (LAST / "checkpoints").mkdir(parents=True)
    assert one_run().name == f"{LAST.name}-3"
    assert os.listdir(LAST) == ["checkpoints"]
    assert "stays as it is" in caplog.text


def test_out_is_that_directory_except_for_the_name_of_the_last_run() -> None:
    with RunHome("mine", {}) as home:
        assert home(*FACTS) == Path("mine")
    first = one_run()
    with RunHome(LAST, {}) as home:
        assert write(home(*FACTS)) == LAST.with_name(f"{LAST.name}-2")
    assert (first / "summary.json").is_file()


def test_a_link_of_another_kind_is_left_alone() -> None:
    Path("elsewhere").mkdir()
    LAST.parent.mkdir()
    for target in ("../elsewhere", f"{LAST.name}-x/../..", "."):
        os.symlink(target, LAST)
        assert last_run(LAST) == LAST
        one_run()
        assert os.readlink(LAST) == target
        os.unlink(LAST)


def test_a_place_that_cannot_be_written_is_refused() -> None:
    Path("runs").write_text("")
    with pytest.raises(UsageError, match="out: found the file runs"):
        one_run()
    os.unlink("runs")
    with pytest.raises(UsageError, match=r"cannot be written: File name too long; choose another out"):
        RunHome(None, {})("a" * 300, *FACTS[1:])
