"""Ctrl-C: a run that is interrupted ends at once and in a sentence, and leaves behind only what was run."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from simcluster_backends.sim.cluster import SimCluster

from simcluster.lab.verify.running import TimeIsUp, wall_limit
from simcluster.process.interrupts import InterruptHandler
from simcluster.transport import Transport
from tests.support.clusters import star
from tests.support.socket_runs import GUARD_S, ROOT, wait_for


@pytest.fixture(autouse=True)
def default_sigint() -> Iterator[None]:
    """Take SIGINT as a terminal's process does: a job that a shell started in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@contextmanager
def run(*arguments: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """`simcluster run` in *folder*; killed at the end, whatever the test found."""
    process = subprocess.Popen(
        [sys.executable, "-m", "simcluster", "run", *arguments, "--no-report"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder, start_new_session=True,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        # A job that a shell started in the background ignores SIGINT, and so would its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def interrupted(process: subprocess.Popen[str]) -> str:
    """Sends a Ctrl-C and checks that it is answered, and that no process is left; returns what was said."""
    family = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130, err
    assert err.strip().splitlines()[-1] == "interrupted"
    assert "Traceback" not in err
    assert psutil.wait_procs(family, timeout=GUARD_S)[1] == []
    return err


def started_nodes(process: subprocess.Popen[str], count: int) -> bool:
    assert process.poll() is None, process.communicate()
    return len(psutil.Process(process.pid).children(recursive=True)) >= count


@pytest.mark.slow
@pytest.mark.parametrize(
    "ready",
    [
        lambda process, out: (out / "logs").exists(),  # the fork server is not even asked yet
        lambda process, out: started_nodes(process, 3),  # some nodes are there
    ],
    ids=["folder", "nodes"],
)
def test_ctrl_c_before_anything_was_run_leaves_nothing(
    ready: Callable[[subprocess.Popen[str], Path], bool], tmp_path: Path
) -> None:
    out = tmp_path / "deep" / "run"
    with run("quickstart", "--backend", "sockets", "--out", str(out), folder=tmp_path) as process:
        wait_for(lambda: ready(process, out))
        interrupted(process)
    assert list(tmp_path.rglob("*")) == []


def test_ctrl_c_within_a_task_group_leaves_no_task_behind() -> None:
    # What is pending at the end of the process is destroyed there, tensors and all, which torch answers with an abort.
    cluster = SimCluster(star(3))

    async def pressed() -> None:
        raise KeyboardInterrupt

    async def body(node: Transport) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(node.recv((node.rank + 1) % 3, "never"))
            if node.rank == 1:
                group.create_task(pressed())

    with pytest.raises(KeyboardInterrupt):
        cluster.run([body] * 3)
    assert len(cluster.tasks) == 3
    assert all(task.done() for task in cluster.tasks.values())
    assert asyncio.all_tasks(cluster.loop) == set()


@pytest.mark.slow
def test_ctrl_c_says_how_to_go_on_from_the_last_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "long.yaml").write_text(
        "topology: thunderbolt-mesh-4\nalgorithm: all_reduce_dp\nworkload: quadratic\nstop: {steps: 1000000}\n"
        "checkpoint: {every: 5}\n"
    )
    with run("long.yaml", "--out", "a run", folder=tmp_path) as process:
        wait_for(lambda: list((tmp_path / "a run").glob("checkpoints/step-*.json")))
        said = interrupted(process).splitlines()
    last = max(path.stem for path in (tmp_path / "a run" / "checkpoints").glob("step-*.json"))
    assert said == [f"to resume from step {int(last.removeprefix('step-'))}: simcluster resume 'a run'", "interrupted"]


def test_ctrl_c_while_the_command_is_still_imported_is_a_sentence_too() -> None:
    code = """
import signal, sys
from simcluster.__main__ import main

class Pressed:
    def find_spec(self, name, *_):
        if name == "simcluster.cli.app":
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Pressed())
signal.signal(signal.SIGINT, signal.default_int_handler)
main()
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


def test_ctrl_c_while_torch_is_loaded_ends_the_process_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ended(Exception):
        pass

    def end(code: int) -> None:
        raise Ended(code)

    torch = types.ModuleType("torch")
    torch.__spec__ = types.SimpleNamespace(_initializing=True)  # type: ignore[assignment]  # an exception may abort
    monkeypatch.setattr("sys.unraisablehook", sys.unraisablehook)
    monkeypatch.setattr("os._exit", end)
    command = InterruptHandler()
    command.begins()
    with monkeypatch.context() as loading:
        loading.setitem(sys.modules, "torch", torch)
        with pytest.raises(Ended, match="130"):
            command(signal.SIGINT, None)
    command = InterruptHandler()
    command.begins()
    with pytest.raises(KeyboardInterrupt):
        command(signal.SIGINT, None)


@pytest.mark.parametrize("has_said", [False, True])
def test_a_second_ctrl_c_does_not_repeat_that_the_command_was_interrupted(
    has_said: bool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    codes: list[int] = []
    monkeypatch.setattr("os._exit", codes.append)
    command = InterruptHandler()
    command.ends(has_said=has_said)
    command.say()
    command.end_at_once()
    assert (codes, capfd.readouterr().err) == ([130], "" if has_said else "interrupted\n")


@pytest.mark.parametrize(("number", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGALRM, TimeIsUp)])
def test_a_signal_waits_for_the_callback_that_runs_so_that_no_task_loses_its_next_step(
    number: signal.Signals, raised: type[BaseException]
) -> None:
    cluster = SimCluster(star(2))
    seen: list[str] = []

    async def body(node: Transport) -> None:
        if node.rank == 1:
            signal.raise_signal(number)
            seen.append("the callback went on")
        try:
            await node.recv(1 - node.rank, "never")
        finally:
            seen.append(f"{node.rank} ended")

    with pytest.raises(raised), wall_limit(100.0):
        cluster.run([body] * 2)
    assert seen[0] == "the callback went on"
    assert sorted(seen[1:]) == ["0 ended", "1 ended"]
    assert all(task.done() for task in cluster.tasks.values())
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_task_that_lost_its_next_step_is_ended_with_the_run() -> None:
    cluster = SimCluster(star(2))
    ended: list[int] = []

    async def body(node: Transport) -> None:
        try:
            if node.rank == 0:
                await asyncio.sleep(0)
                cluster.loop._ready.clear()  # what an exception between two instructions of the loop does
                raise KeyboardInterrupt
            await asyncio.sleep(0)
        finally:
            ended.append(node.rank)

    with pytest.raises(KeyboardInterrupt):
        cluster.run([body] * 2)
    assert sorted(ended) == [0, 1]
