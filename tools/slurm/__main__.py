"""`make slurm`: check that a sweep of 20 points on a real Slurm yields the table of a local sweep.

On the partition `short` one job is killed; on `long` the sweep receives a Ctrl-C. Afterwards each
sweep is started again.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd

from tests.support.root import ROOT
from tools.slurm.daemons import CPUS, NotThere, install, said, slurm

POINTS = 20
SWEEP = (
    "sweep", "quickstart", "--set", "stop.steps=50", "--set", "algorithm.pull_interval=1,2,4,8", "--seeds", "5",
    "--no-report", "--jobs", str(CPUS),
)  # fmt: skip
PATIENCE_S = 600.0


@contextmanager
def _sweeping(environment: dict[str, str], out: Path, *more: str) -> Iterator[subprocess.Popen[str]]:
    """Run a sweep into *out* during the block. Interrupt it if it is still running at the end."""
    command = [sys.executable, "-m", "simcluster", *SWEEP, "--out", str(out), *more]
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.wait(PATIENCE_S)


def _ended(process: subprocess.Popen[str], expected: int = 0) -> str:
    text, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == expected, f"exit code {process.returncode}:\n{text}"
    return text


def _wait(condition: Callable[[], object], process: subprocess.Popen[str]) -> None:
    """Wait until *condition* is true. Raise AssertionError if *process* exits first."""
    until_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert process.poll() is None, f"the sweep ended first:\n{process.communicate()[0]}"
        assert time.monotonic() < until_s, "it does not happen"
        time.sleep(0.1)


def _complete(out: Path) -> int:
    return len(list(out.glob("points/*/summary.json")))


def _queue(environment: dict[str, str], state: str = "all") -> list[str]:
    states = [] if state == "all" else [f"--states={state}"]
    return said(environment, "squeue", "--noheader", "--array", "--format=%F_%K", *states).split()


def _resume(environment: dict[str, str], out: Path, local: Path) -> None:
    """Start the sweep again. Check that its table equals that of the local sweep, byte for byte."""
    before = _complete(out)
    with _sweeping(environment, out, "--engine", "slurm") as process:
        _ended(process)
    assert (out / "table.csv").read_bytes() == (local / "table.csv").read_bytes(), "the tables differ"
    _say(f"  resumed with {before} of {POINTS} points: {POINTS} results equal the local sweep's")


def killed_job(environment: dict[str, str], out: Path, local: Path) -> None:
    """Kill a running job. Check that only its points fail, and that the next sweep runs these."""
    with _sweeping(environment, out, "--engine", "slurm") as process:
        _wait(lambda: _queue(environment, "RUNNING"), process)
        job = _queue(environment, "RUNNING")[0]
        said(environment, "scancel", job)
        _ended(process)
    table = pd.read_csv(out / "table.csv")
    failed = table[table["status"] != "done"]
    assert 1 <= len(failed) < POINTS / 2, table.to_string()
    assert failed["error"].str.contains(f"its job ended; see logs/slurm-{job}.txt").all(), failed["error"].to_string()
    _say(f"  job {job} was killed: {len(failed)} of {POINTS} points failed, the others ran")
    _resume(environment, out, local)


def interrupted_sweep(environment: dict[str, str], out: Path, local: Path) -> None:
    """Interrupt the sweep after three points.

    Check that none of its jobs is left, and that the next sweep runs the other points.
    """
    with _sweeping(environment, out, "--engine", "slurm") as process:
        _wait(lambda: _complete(out) >= 3, process)
        process.send_signal(signal.SIGINT)
        _ended(process, 130)
    assert not _queue(environment), "jobs are left in the queue"
    assert _complete(out) < POINTS
    _say("  the sweep was interrupted: no job is left in the queue")
    _resume(environment, out, local)


def _say(words: str) -> None:
    print(words, flush=True)


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that `finally` ends the daemons
    # If this program runs in the background, it ignores SIGINT, and so would its sweeps.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    began_s = time.monotonic()
    try:
        install()
        with tempfile.TemporaryDirectory() as folder, slurm() as environment:
            _say(said(environment, "sinfo", "--version").strip() + ", one node, partitions short and long")
            local = Path(folder) / "local"
            with _sweeping(environment, local) as process:
                _ended(process)
            assert _complete(local) == POINTS
            for partition, trial in (("short", killed_job), ("long", interrupted_sweep)):
                _say(f"{POINTS} points on the partition {partition}")
                trial({**environment, "SBATCH_PARTITION": partition}, Path(folder) / partition, local)
    except NotThere as error:
        sys.exit(f"no Slurm: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
    _say(f"all daemons have ended; {time.monotonic() - began_s:.0f} s")


if __name__ == "__main__":
    main()
