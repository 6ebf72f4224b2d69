"""Sweeps: nothing runs twice, the table does not depend on who ran what when, and what fails is a row."""

from __future__ import annotations

import gc
import json
import math
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import yaml

import simcluster
from simcluster.errors import UsageError
from simcluster.lab.sweeps.axes import Axis
from simcluster.lab.sweeps.engines import DIED, engine
from simcluster.lab.sweeps.points import digest_of, read_points, run_point
from simcluster.lab.ui.shelf import RunShelf
from simcluster.workloads import Replica

SMALL: dict[str, Any] = {
    "name": "small",
    "topology": "smolcluster",
    "algorithm": {"name": "sync_ps"},
    "workload": {"name": "quadratic"},
    "stop": {"steps": 6},
}
VALUES = {"algorithm.pull_interval": [1, 2, 3], "topology.links.pi5-mini1.bandwidth": ["10 Mbps", "1 Gbps"]}


def files(folder: Path) -> tuple[bytes, bytes]:
    return (folder / "table.csv").read_bytes(), (folder / "table.parquet").read_bytes()


@pytest.mark.slow
def test_the_table_is_the_same_whoever_ran_it_and_has_a_row_for_every_point_and_seed(tmp_path: Path) -> None:
    alone = simcluster.sweep(SMALL, VALUES, seeds=2, out=tmp_path / "alone", jobs=1)
    pool = simcluster.sweep(SMALL, VALUES, seeds=2, out=tmp_path / "pool", jobs=2)
    assert files(alone.folder) == files(pool.folder)
    frame = pd.read_csv(alone.folder / "table.csv")
    assert len(frame) == 3 * 2 * 2
    assert list(frame["seed"]) == [0, 1] * 6
    assert list(frame["algorithm.pull_interval"]) == [1] * 4 + [2] * 4 + [3] * 4
    assert (frame["status"] == "done").all()
    assert frame["trace_sha256"].nunique() == 12
    assert alone.runs[3] is not None
    assert alone.runs[3].summary["loss"] == frame["loss"][3]


def test_what_has_run_is_not_run_again_and_a_larger_sweep_has_the_smaller_ones_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []

    def counted(document: Any, folder: str, options: Any) -> None:
        ran.append(folder)
        run_point(document, folder, options)

    monkeypatch.setattr("simcluster.lab.sweeps.engines.run_point", counted)
    key = "algorithm.pull_interval"
    simcluster.sweep(SMALL, {key: [1, 2]}, out=tmp_path / "s", jobs=1)
    assert len(ran) == 2
    simcluster.sweep(SMALL, {key: [1, 2]}, out=tmp_path / "s", jobs=1)
    assert len(ran) == 2
    simcluster.sweep(SMALL, {key: [1, 2, 3]}, out=tmp_path / "s", jobs=1)
    assert len(ran) == 3


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"faults": [[], [{"kind": "crash", "node": "mini1", "at": "0.1 ms"}]]}, "PeerLost"),
        ({"topology.nodes.pi4.memory": ["8 GB", "1 kB"]}, "too little"),
    ],
)
def test_a_failed_point_is_a_row_with_its_error(values: dict[str, Any], error: str, tmp_path: Path) -> None:
    done = simcluster.sweep(SMALL, values, out=tmp_path / "s", jobs=1)
    assert list(done.table["status"]) == ["done", "failed"]
    assert error in done.table["error"][1]
    assert done.failed == 1


def test_bad_values_are_told_all_at_once_and_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        simcluster.sweep(SMALL, {"algorithm.pull_interval": [0, 1, -1], "stop.stepz": [1]}, out=tmp_path / "s")
    assert len(error.value.problems) == 3
    assert "stepz" in str(error.value)
    assert not (tmp_path / "s").exists()


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match="other things"):
        simcluster.sweep(SMALL, {"algorithm.pull_interval": [1, 2]}, out=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.slow
def test_a_target_adds_when_it_was_reached(tmp_path: Path) -> None:
    done = simcluster.sweep(
        SMALL | {"evaluate_every": 1}, {"workload.learning_rate": [0.0001, 0.1]},
        out=tmp_path / "s", jobs=1, target={"loss": 1.6},
    )  # fmt: skip
    never, reached = done.table["time_to_target_s"]
    assert pd.isna(never)
    assert 0 < reached <= done.table["elapsed_s"][1]


def test_the_digest_is_of_values_code_and_own_files(tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text("one = 1\n")
    document = {"algorithm": {"path": f"{own}:one"}, "seed": 0}
    first = digest_of(document)
    assert digest_of({"seed": 0, "algorithm": {"path": f"{own}:one"}}) == first
    assert digest_of(document | {"seed": 1}) != first
    own.write_text("one = 2\n")
    assert digest_of(document) != first


def die(document: Any, folder: str, options: Any) -> None:
    if document == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    Path(folder).write_text("done")


@pytest.mark.slow
def test_a_worker_that_dies_takes_only_its_own_point_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simcluster.lab.sweeps.engines.run_point", die)
    calls = [("fine", str(tmp_path / "0"), {}), ("dies", str(tmp_path / "1"), {}), ("fine", str(tmp_path / "2"), {})]
    with engine("local", 2, tmp_path) as run_all:
        outcomes = dict(run_all(calls))
    assert outcomes == {0: None, 1: DIED, 2: None}
    assert (tmp_path / "2").read_text() == "done"


def note_garbage(document: Any, folder: str, options: Any) -> None:
    Path(folder).write_text(str(gc.isenabled()))


@pytest.mark.slow
def test_a_worker_searches_for_garbage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simcluster.lab.sweeps.engines.run_point", note_garbage)
    with engine("local", 2, tmp_path) as run_all:
        outcomes = dict(run_all([("one", str(tmp_path / "0"), {}), ("two", str(tmp_path / "1"), {})]))
    assert outcomes == {0: None, 1: None}
    assert [(tmp_path / name).read_text() for name in "01"] == ["True", "True"]


WAITS = """
import os, select
from pathlib import Path

GO, PARENT = Path(__file__).with_name("go"), os.getppid()


async def waits(node, replica, *, k: int = 0):
    while k == 4 and not GO.exists():
        if os.getppid() != PARENT:
            os._exit(1)
        select.select([], [], [], 0.02)
    node.record(step=1, k=k)
"""


@pytest.mark.slow
def test_a_killed_sweep_goes_on_where_it_was(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(WAITS)
    experiment = SMALL | {"topology": "thunderbolt-mesh-4", "algorithm": {"path": str(tmp_path / "own.py:waits")}}
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(experiment))
    command = [sys.executable, "-m", "simcluster", "sweep", "small.yaml", "--set", "algorithm.k=range(1,5)"]
    command += ["--jobs", "2", "--out", "killed"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    points = tmp_path / "killed" / "points"
    while len(list(points.glob("*/summary.json"))) < 3:  # the last of the four waits
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.kill()
    process.communicate()
    before = {path: path.stat().st_mtime_ns for path in points.glob("*/summary.json")}
    assert len(before) == 3
    (tmp_path / "go").touch()
    values = {"algorithm.k": range(1, 5)}
    simcluster.sweep(experiment, values, out=tmp_path / "killed", jobs=1, report=False)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    whole = simcluster.sweep(experiment, values, out=tmp_path / "whole", jobs=1, report=False)
    assert (whole.table["status"] == "done").all()
    assert files(tmp_path / "killed") == files(whole.folder)


@pytest.mark.slow
def test_a_script_that_sweeps_whenever_it_is_read_does_so_once(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import simcluster\n"
        "print('read')\n"
        f"swept = simcluster.sweep({SMALL!r}, {{'algorithm.pull_interval': [1, 2]}}, out={str(tmp_path / 'swept')!r}, "
        "jobs=2, report=False)\n"
        "print(list(swept.table['status']))\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("read\n['done', 'done']\n", "")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells what signals are blocked")
def test_a_ctrl_c_never_reaches_the_fork_server() -> None:
    script = (
        "from multiprocessing import forkserver\n"
        "from simcluster.lab.sweeps.engines import start_fork_server\n"
        "start_fork_server()\n"
        "print(open(f'/proc/{forkserver._forkserver._forkserver_pid}/status').read())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    (blocked,) = (line.split()[1] for line in done.stdout.splitlines() if line.startswith("SigBlk:"))
    assert int(blocked, 16) & 1 << signal.SIGINT - 1


def test_a_target_that_no_point_reaches_is_noted(command: Any) -> None:
    swept = [
        "quickstart",
        "--set",
        "workload=quadratic",
        "--set",
        "stop.steps=2",
        "--jobs",
        "1",
        "--no-report",
        "--json",
    ]
    code, out, err = command("sweep", *swept, "--target", "accuracy=0.9", "--out", "s")
    assert (code, [row["time_to_target_s"] for row in json.loads(out)]) == (0, [None])
    assert "note: no point reached accuracy=0.9\n" in err


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"engine_name": "cloud"}, "engine_name: found 'cloud', expected local, dask"),
        ({"options": {"portble": True}}, "portble: unknown option of the simulator; did you mean 'portable'"),
        ({"options": {"threads": 0}}, "threads: found 0, expected a whole number from 1 to 4096"),
        ({"options": {"threads": 2}, "backend": "sockets"}, "threads: unknown option of the sockets backend"),
        (
            {"options": {"limt_s": 3}, "backend": "sockets"},
            "unknown option of the sockets backend; did you mean",
        ),
        (
            {"options": {"stuck_s": -1}, "backend": "torch"},
            "stuck_s: found -1, expected a number of seconds from 1e-06",
        ),
        ({"target": {"accuracy": 2}}, "accuracy=2, expected a number above 0, at most 1"),
        ({"target": {"loss": math.inf}}, "loss=inf, expected a finite number"),
    ],
)
def test_what_no_point_can_have_is_refused_before_anything_is_written(
    tmp_path: Path, wrong: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        simcluster.sweep(SMALL, {"algorithm.pull_interval": [1, 2]}, out=tmp_path / "s", **wrong)
    assert not (tmp_path / "s").exists()


def test_a_dask_scheduler_that_does_not_answer_is_told_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def client(address: str) -> None:
        raise OSError(f"Timed out trying to connect to {address} after 30 s")

    stand_in = SimpleNamespace(Client=client, LocalCluster=None, as_completed=None)
    monkeypatch.setitem(sys.modules, "distributed", stand_in)
    with pytest.raises(UsageError, match="expected the address of a Dask scheduler"):
        simcluster.sweep(SMALL, VALUES, out=tmp_path / "s", engine_name="dask=tcp://127.0.0.1:1")
    assert not (tmp_path / "s").exists()


def test_dask_gives_the_same_table(tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="the extra dask is not installed")
    # In a script of its own, as people have it: Dask's workers import it again.
    script = tmp_path / "script.py"
    script.write_text(
        "import simcluster\n"
        "if __name__ == '__main__':\n"
        f"    simcluster.sweep({SMALL!r}, {VALUES!r}, out='dask', engine_name='dask', jobs=2)\n"
    )
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    alone = simcluster.sweep(SMALL, VALUES, out=tmp_path / "alone", jobs=1)
    assert files(tmp_path / "dask") == files(alone.folder)


WORKERS = """
import os, sys, time
import simcluster.lab.sweeps.orphans

server = os.getpid()
for name, is_orphan in (("with its server", False), ("an orphan", True)):
    if not (worker := os.fork()):
        while is_orphan and os.getppid() == server:
            time.sleep(0.01)
        raise FileNotFoundError(name)
    if not is_orphan:
        os.waitpid(worker, 0)
"""


@pytest.mark.slow
def test_a_worker_that_cannot_begin_says_so_unless_its_sweep_is_over() -> None:
    done = subprocess.run([sys.executable, "-c", WORKERS], capture_output=True, text=True, check=True)
    assert [line for line in done.stderr.splitlines() if "Error" in line] == ["FileNotFoundError: with its server"]


@pytest.mark.slow
def test_a_ctrl_c_says_what_is_kept_and_leaves_a_table_of_it_and_the_same_sweep_goes_on(tmp_path: Path) -> None:
    def press(done: int, total: int, before: int) -> None:
        if done == 2 > before:
            raise KeyboardInterrupt

    sweep: Any = partial(simcluster.sweep, SMALL, VALUES, out=tmp_path / "s", jobs=1, report=False)
    with pytest.raises(KeyboardInterrupt) as end:
        sweep(progress=press)
    assert end.value.__notes__ == [f"2 of 6 points are kept in {tmp_path / 's'}; the same command continues"]
    assert len(simcluster.load_sweep(tmp_path / "s").table) == 2
    [row] = RunShelf(tmp_path).rows()
    assert (row["state"], row["points"]) == ("interrupted", 2)
    before: list[int] = []
    assert len(sweep(progress=lambda done, total, kept: before.append(kept)).table) == 6
    assert set(before) == {2}
    assert RunShelf(tmp_path).rows()[0]["state"] == "done"


def test_a_workload_is_tried_out_once_for_each_seed_of_a_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Replica] = []
    monkeypatch.setattr(Replica, "try_out", lambda replica: tried.append(replica))
    axes = [Axis((key,), tuple((value,) for value in values)) for key, values in VALUES.items()]
    experiment = SMALL | {"workload": {"name": "quadratic", "batch_size": 5}}
    assert len(read_points(experiment, axes, {}, seeds=2)) == 12
    assert len(tried) == 2
