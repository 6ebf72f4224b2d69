"""Run without a launcher: this process is rank 0, and starts the other ranks on this machine.

A started process reads its instructions from standard input. It exits when its standard input
closes, which happens whenever this process ends.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, NoReturn

import msgspec

from simcluster.errors import RunError
from simcluster.job import ClusterJob
from simcluster.logs import setup as logs
from simcluster.paths.inside import append_to, remove
from simcluster.process.starting import begin_process
from simcluster.runs.record import RunRecord
from simcluster_backends.common.narrator import log as lines
from simcluster_backends.torch.group import WorldPlace, store_of_ours
from simcluster_backends.torch.node import take_part
from simcluster_backends.torch.settings import TorchOptions

LEAVE_S = 5.0

_BOOT = (
    "from simcluster.process.loading import torch_loads\n"
    "with torch_loads(): from simcluster_backends.torch.starting import live\n"
    "live()"
)


class RankInstructions(msgspec.Struct):
    """Instructions for a started process. *log* is (format, level, Loki's URL, job's title)."""

    rank: int
    port: int
    names: list[str]
    config_json: str
    seed: int
    program: str
    options: dict[str, float | int | bool | None]
    log: tuple[str, str, str, str]


def run_here(job: ClusterJob, options: TorchOptions, place: WorldPlace) -> RunRecord | RunError | None:
    """Run *job* with this process as rank 0, at *place*, and a new process for each other rank.

    When this returns or raises, all other processes have ended.
    """
    store = store_of_ours(place, 0, options.start_s)
    processes: list[subprocess.Popen[bytes]] = []

    def fallen() -> list[str]:
        where = f"; see {job.log_folder}" if job.log_folder is not None else ""
        return [
            f"rank {rank} ({job.names[rank]}) with exit code {process.returncode}{where}"
            for rank, process in enumerate(processes, 1)
            if process.poll() is not None
        ]

    leave_s = 0.0
    with ExitStack() as files:
        try:
            for rank, name in enumerate(job.names[1:], 1):
                log: IO[bytes] | int = subprocess.DEVNULL
                if job.log_folder is not None:
                    log = files.enter_context(_log_file(job.log_folder, name))
                settings = logs.current()
                logging_ = settings.format, logs.level_of_nodes(), settings.loki, str(job.about.get("name", ""))
                given = asdict(options)
                order = RankInstructions(
                    rank, store.port, job.names, job.config_json, job.seed, job.program, given, logging_
                )
                _start(order, log, processes)
            if job.log_folder is not None:
                files.enter_context(_lines_in(files.enter_context(_log_file(job.log_folder, job.names[0]))))
            outcome = take_part(job, options, place, store, fallen)
            is_lost = isinstance(outcome, RunRecord) and outcome.extra["lost"]
            leave_s = 0.0 if is_lost else LEAVE_S  # a lost process will not exit by itself
            return outcome
        finally:
            _end(processes, leave_s)


def _log_file(folder: Path, name: str) -> IO[bytes]:
    """Open a new, empty log file of node *name* in *folder*."""
    file = f"{name}.log"
    folder.mkdir(parents=True, exist_ok=True)
    remove(folder.parent, folder.name, file)
    return os.fdopen(append_to(folder.parent, folder.name, file), "wb")


@contextmanager
def _lines_in(file: IO[bytes]) -> Iterator[None]:
    """Write the log lines of this process's node to *file*, independently of the terminal."""
    handler = logging.StreamHandler(os.fdopen(os.dup(file.fileno()), "w", encoding="utf-8", errors="replace"))
    handler.setFormatter(logs.formatter(logs.current()))
    before = lines.level, lines.propagate
    lines.propagate = lines.isEnabledFor(logging.INFO)
    lines.addHandler(handler)
    lines.setLevel(logs.level_of_nodes().upper())
    try:
        yield
    finally:
        lines.removeHandler(handler)
        lines.setLevel(before[0])
        lines.propagate = before[1]
        handler.stream.close()


def _start(order: RankInstructions, log: IO[bytes] | int, processes: list[subprocess.Popen[bytes]]) -> None:
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", _BOOT],
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
        start_new_session=True,  # a Ctrl-C at the terminal is rank 0's to handle
    )
    processes.append(process)
    assert process.stdin is not None
    with suppress(BrokenPipeError):  # the process has already ended: `fallen` reports that
        process.stdin.write(msgspec.json.encode(order) + b"\n")
        process.stdin.flush()


def _end(processes: Sequence[subprocess.Popen[bytes]], leave_s: float) -> None:
    """Kill every process that has not exited within *leave_s*."""
    until_s = time.monotonic() + leave_s
    for process in processes:
        try:
            process.wait(max(0.0, until_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdin is not None:
            with suppress(BrokenPipeError):
                process.stdin.close()


def obey() -> int:
    """Run this process, which `run_here` has started, to its end; return the exit code."""
    line = os.fdopen(os.dup(0), "rb").readline()
    order = msgspec.json.decode(line, type=RankInstructions)
    job = ClusterJob(order.names, order.config_json, order.seed, program=order.program)
    begin_process(job.preloads)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    options = msgspec.convert(order.options, type=TorchOptions)
    place = WorldPlace(order.rank, len(order.names), loopback=True)
    form, level, loki, title = order.log
    logging.basicConfig(level=logging.INFO, format=logs.TEXT)
    logs.log_as_node(logs.LogSettings(form, level, loki, "node", title, order.rank))
    try:
        outcome = take_part(job, options, place, store_of_ours(place, order.port, options.start_s))
    finally:
        logs.close()
    if isinstance(outcome, RunError):
        print(f"{type(outcome).__name__}: {outcome}", file=sys.stderr, flush=True)
        return 1
    return 0


def _leave_with_parent() -> None:
    while os.read(0, 1):
        pass
    os._exit(1)


def live() -> NoReturn:
    """Run this process, which `run_here` has started; never return."""
    code = obey()
    sys.stdout.flush()
    os._exit(code)  # threads still waiting in gloo would block an orderly exit
