"""Lost ranks, restarts and odd scripts: each ends with a sentence, and leaves nothing."""

from __future__ import annotations

import errno
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import torch

from simcluster.errors import UsageError
from simcluster.scripts import rank_process
from simcluster.scripts.arena import SharedArena
from tests.core.scripts.running import left_over, pair, printed, run_script
from tests.support.root import ROOT
from tests.support.socket_runs import wait_for

BEGIN = "import os, sys, torch, torch.distributed as dist\ndist.init_process_group('gloo')\nrank = dist.get_rank()\n"

ELASTIC = """
begin = torch.load("state.pt")["step"] if os.path.exists("state.pt") else 0
print("from", begin, os.environ["TORCHELASTIC_RESTART_COUNT"], os.environ["TORCHELASTIC_MAX_RESTARTS"])
for step in range(begin, 10):
    dist.all_reduce(torch.ones(125_000))
    if rank == 0:
        torch.save({"step": step + 1}, "state.pt")
    dist.barrier()
"""

CATCHING = """
try:
    for _ in range(10):
        dist.all_reduce(torch.ones(125_000))
except RuntimeError as error:
    print(error)
"""

ODD = """
print(repr(sys.stdin.read()))
child = os.fork()
if child == 0:
    try:
        dist.barrier()
    except RuntimeError as error:
        print(error, flush=True)
    sys.exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
dist.barrier()
os.spawnlp(os.P_NOWAIT, "sleep", "sleep", "1000")
"""

CRASH = [{"kind": "crash", "node": "b", "at": "35 ms"}]
"""A ring of two with 500 kB at 1 Gbps takes 4 ms, so this is in the ninth of ten rounds."""


def script(text: str, tmp_path: Path) -> Path:
    (tmp_path / "script.py").write_text(BEGIN + text)
    return tmp_path / "script.py"


@pytest.mark.slow
def test_a_restart_begins_at_the_scripts_own_checkpoint_as_under_torchrun(tmp_path: Path) -> None:
    run = run_script(script(ELASTIC, tmp_path), tmp_path / "run", pair(), faults=CRASH, options={"max_restarts": 1})
    assert [line for line in printed(tmp_path / "run", "b") if line.startswith("from")] == ["from 0 0 1", "from 8 1 1"]
    (restart,) = run.summary["restarts"]
    assert restart["begins_again"] == "the script's own files"
    assert "rank 1 (b) is lost: crashed by the fault plan" in restart["error"]
    assert restart["lasted_s"] == pytest.approx(0.035, abs=1e-9), "over a link without latency the other hears at once"


def test_a_script_may_catch_the_loss_of_a_rank(tmp_path: Path) -> None:
    file = script(CATCHING, tmp_path)
    run_script(file, tmp_path / "run", pair(), faults=CRASH)
    told = f"{file}:7: all_reduce 9: rank 1 (b) is lost: crashed by the fault plan"
    assert printed(tmp_path / "run") == [told]


@pytest.mark.slow
def test_ctrl_c_says_where_the_files_of_the_script_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, made = tmp_path / "run", [False]

    def interrupted(job: object) -> None:
        if made[0]:
            folder.mkdir()
        raise KeyboardInterrupt

    monkeypatch.setattr("simcluster_backends.sim.run.run_cluster", interrupted)
    for made[0], more in ((False, ""), (True, f"; what its ranks printed and wrote is in {folder}")):
        with pytest.raises(KeyboardInterrupt) as end:
            run_script(script("", tmp_path), folder, pair())
        assert getattr(end.value, "__notes__", []) == [f"this run has no results{more}"]


def test_the_simulator_shows_all_that_rank_0_prints_lines_like_those_of_a_log_too(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    line = "2026-01-01 00:00:00,000 INFO epoch 1"
    run_script(script(f"print({line!r}, flush=True)\n", tmp_path), tmp_path / "run", pair())
    assert line in capfd.readouterr().err.splitlines()


def test_forks_are_no_ranks_and_processes_that_stay_end_with_their_rank(tmp_path: Path) -> None:
    run_script(script(ODD, tmp_path), tmp_path / "run", pair())
    told = f"{tmp_path / 'script.py'}:9: a process that the script has forked is no rank of the cluster"
    assert printed(tmp_path / "run") == ["''", told, "7"]
    assert left_over() == []


def test_a_script_without_a_group_runs_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "script.py").write_text("print('alone')\n")
    run_script(tmp_path / "script.py", tmp_path / "run", pair())
    assert printed(tmp_path / "run", "b") == ["alone"]
    assert "the script never called init_process_group: every rank ran all of it, alone" in caplog.text


def test_a_rank_that_never_calls_is_told_with_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_process, "SILENT_S", 0.5)
    told: list[str] = []

    class Heard(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append(record.getMessage())
            if told[-1].endswith(":5"):  # a rank that is slow to begin is told with another line
                (tmp_path / "heard").touch()

    handler = Heard()
    logger = logging.getLogger("simcluster.scripts")
    logger.addHandler(handler)
    file = script(f"if rank == 1:\n    while not os.path.exists({str(tmp_path / 'heard')!r}): pass\n", tmp_path)
    try:
        run_script(file, tmp_path / "run", pair())
    finally:
        logger.removeHandler(handler)
    assert f"rank 1 has not called for 0.5 s: it is at {file}:5" in told


@pytest.mark.parametrize(
    ("content", "told"),
    [("def f(:\n", "line 1: SyntaxError"), ("name: x\nnodes: [a\n", "line 2: SyntaxError"), ("\0\1", "null bytes")],
)
def test_what_is_no_python_is_refused_before_anything_is_written(content: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(content)
    with pytest.raises(UsageError, match=told):
        run_script(tmp_path / "script.py", tmp_path / "run", pair())
    assert not (tmp_path / "run").exists()


def test_shared_memory_that_is_full_is_an_error_with_the_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space left on device: a rank needs 4,194,304 more bytes of shared memory"):
        SharedArena(tmp_path).put(torch.zeros(1 << 20))


@pytest.mark.slow
def test_a_killed_run_leaves_no_process_and_no_memory(tmp_path: Path) -> None:
    text = "open(f'{sys.argv[1]}/{rank}', 'w').write(f'{os.getpid()}\\n')\nwhile True: pass\n"
    code = (
        "import sys; from pathlib import Path; from tests.core.scripts.running import pair, run_script\n"
        f"run_script(Path({str(script(text, tmp_path))!r}), Path({str(tmp_path / 'run')!r}), pair(), {str(tmp_path)!r})"
    )
    # Without a guard of `__main__`: the processes of ranks must not run the main module again.
    (tmp_path / "main.py").write_text(code)
    run = subprocess.Popen([sys.executable, str(tmp_path / "main.py")], env={**os.environ, "PYTHONPATH": str(ROOT)})
    files = [tmp_path / "0", tmp_path / "1"]
    wait_for(lambda: all(file.exists() and file.read_text().endswith("\n") for file in files))
    ranks = [psutil.Process(int(file.read_text())) for file in files]
    memory = Path("/dev/shm")
    assert len(list(memory.glob(f"simcluster-{run.pid}-*"))) == 2
    run.send_signal(signal.SIGKILL)
    run.wait()
    psutil.wait_procs(ranks, timeout=60)
    assert not any(rank.is_running() for rank in ranks)
    assert not list(memory.glob(f"simcluster-{run.pid}-*"))
