"""Runs over processes for tests: jobs, a run in a thread of its own, and who of its processes lives."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from simcluster_backends.sockets import run_cluster
from simcluster_backends.sockets.net.addresses import open_socket

from simcluster.job import ClusterJob
from simcluster.runs.record import RunRecord
from tests.support.root import ROOT

GUARD_S = 300.0
"""Guards against hangs: no machine is so busy that what is waited for takes longer. No claim depends on it."""


def job(program: str, names: str = "abc", folder: Path | None = None, **settings: Any) -> ClusterJob:
    config = json.dumps({"folder": str(folder), "mark": "m"})
    return ClusterJob(list(names), config, program=f"tests.support.node_programs:{program}", **settings)


def wait_for(what: Callable[[], Any]) -> Any:
    """The first true value of *what*."""
    end_s = time.monotonic() + GUARD_S
    while not (value := what()):
        assert time.monotonic() < end_s, "waited for too long"
        time.sleep(0.02)
    return value


def pids_in(folder: Path, names: str) -> dict[str, int]:
    """The process ids of all nodes called *names*, once each of them has written its own."""

    def read() -> dict[str, int] | None:
        texts = {name: folder / f"{name}.pid" for name in names}
        pids = {name: file.read_text() for name, file in texts.items() if file.exists()}
        return {name: int(pid) for name, pid in pids.items()} if all(map(pids.get, names)) else None

    return dict(wait_for(read))


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


class Running:
    """A run in a thread, so that the test can do something to it meanwhile."""

    def __init__(self, request: ClusterJob) -> None:
        self.record: RunRecord | None = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(request,))
        self._thread.start()

    def _run(self, request: ClusterJob) -> None:
        try:
            self.record = run_cluster(request)
        except BaseException as error:
            self.error = error

    def result(self) -> RunRecord:
        self._thread.join(GUARD_S)
        assert not self._thread.is_alive(), "the run hangs"
        if self.error is not None:
            raise self.error
        assert self.record is not None
        return self.record


@contextmanager
def hand_started(name: str, rendezvous: str, key_file: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`simcluster node` by hand, in a process of its own."""
    code = (
        "import sys; from pathlib import Path; from simcluster_backends.sockets import read_key; "
        "from simcluster_backends.sockets.node.process import join; "
        "sys.exit(join(sys.argv[1], sys.argv[2], read_key(Path(sys.argv[3]))))"
    )
    command = [sys.executable, "-c", code, name, rendezvous, str(key_file)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            yield process
        finally:
            process.kill()


def free_port() -> int:
    with open_socket("127.0.0.1", 0, "test") as listening:
        return int(listening.getsockname()[1])
