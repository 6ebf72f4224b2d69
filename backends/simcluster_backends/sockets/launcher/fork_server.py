"""The parent's end of the fork server; fork_process is the other end.

The two exchange JSON lines over the server's stdin and stdout, which keeps the key out of command
lines, environments and files. When its stdin closes, the server kills its children and ends. So no
process is left, however the parent ends. If the server itself is killed, its children survive, and
the parent watches them by process id. multiprocessing's fork server is not used because it pickles.
"""

from __future__ import annotations

import atexit
import concurrent.futures
import contextlib
import itertools
import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from simcluster.errors import RunError
from simcluster_backends.sockets.launcher.fork_process import SignalName, signal_group

_BOOT = (
    "import json, sys; sys.path[:] = json.loads(open(0, 'rb', buffering=0, closefd=False).readline()); "
    "from simcluster_backends.sockets.launcher.fork_process import serve; serve()"
)
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
_MEMORY = {
    "THP_MEM_ALLOC_ENABLE": "1",
    "MALLOC_MMAP_THRESHOLD_": str(32 * 1024**2),
    "MALLOC_TRIM_THRESHOLD_": str(64 * 1024**2),
}
"""Allocator settings for nodes; the user's own settings take precedence.

Every message needs new memory, and allocating memory takes longer than filling it. So torch asks
for 2 MiB pages for large blocks. glibc keeps freed blocks below 32 MiB, the highest threshold that
it allows, up to 64 MiB in all, as much as an inbox holds.
"""

CLOSE_S = 5.0
ORPHANS_S = 0.1
"""The interval at which the parent polls the nodes of a killed fork server."""

log = logging.getLogger("simcluster.sockets")


class Start(concurrent.futures.Future[int]):
    """A future of the process id of a node, from the request with this *number*."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
        # It cannot be cancelled: the process is forked even if the caller stops waiting.
        self.set_running_or_notify_cancel()


class ForkServer:
    """The parent's end of a fork server. Use `fork_server()`: one serves all runs of a process."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._numbers = itertools.count()
        self._pids: dict[int, Start] = {}
        self._on_exit: dict[int, Callable[[int | None], None]] = {}
        self._children: dict[int, int] = {}  # number -> process id
        self._closing = False
        self._lock = threading.Lock()
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-c", _BOOT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # a Ctrl-C at the terminal is the parent's to handle
            env=_environment(),
        )
        self._write(_path())
        self._reader = threading.Thread(target=self._read, name="fork server", daemon=True)
        self._reader.start()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None and self._reader.is_alive()

    def spawn(self, on_exit: Callable[[int | None], None], **request: Any) -> Start:
        """Start a node that calls `join(**request)`; return a future of its process id.

        *on_exit* is called in another thread with the exit code: negative for a signal, None if
        unknown. The future raises RunError if the server is gone.
        """
        number = next(self._numbers)
        start = Start(number)
        with self._lock:
            self._pids[number], self._on_exit[number] = start, on_exit
        here = {"path": _path(), "folder": os.getcwd(), "environment": _environment()}
        self._write({"spawn": number, "here": here, **request})
        return start

    def forget(self, start: Start) -> None:
        """Cancel the request of *start* if the server has not obeyed it yet."""
        self._write({"forget": start.number})

    def signal(self, pid: int, name: SignalName) -> None:
        """Send the signal *name* to the process group of child *pid*, if it still runs."""
        if self.alive:
            self._write({"signal": name, "to": pid})
        else:
            signal_group(pid, name)

    def close(self) -> None:
        """End the server and all its children."""
        self._closing = True
        if not self._on_exit:  # without children, do not wait until it has imported torch
            self._process.kill()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(CLOSE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(CLOSE_S)
        if self._process.returncode:  # killed, so it has not ended its children
            for pid in self._children.values():
                signal_group(pid, "SIGKILL")
        self._process.stdout.close()

    def _write(self, what: object) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(what).encode() + b"\n")
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError):
            self._fail_pending()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            with self._lock:
                if "pid" in answer:
                    self._children[answer["of"]] = answer["pid"]
                    self._pids.pop(answer["of"]).set_result(answer["pid"])
                    continue
                del self._children[answer["of"]]
                on_exit = self._on_exit.pop(answer["of"])
            on_exit(answer["exit"])
        self._fail_pending()
        self._outlive()

    def _outlive(self) -> None:
        """Watch the children of a killed server, which survive it, until they have exited."""
        if self._children and not self._closing:
            log.warning("the fork server was killed; its nodes continue")
        while self._children and not self._closing:
            for number, pid in list(self._children.items()):
                try:
                    os.kill(pid, 0)
                except ProcessLookupError:
                    del self._children[number]
                    self._on_exit.pop(number)(None)
            time.sleep(ORPHANS_S)

    def _fail_pending(self) -> None:
        with self._lock:
            pending, self._pids = list(self._pids.values()), {}
        for start in pending:
            start.set_exception(RunError("the fork server has ended: see its messages above"))


def _path() -> list[str]:
    return [os.getcwd() if entry == "" else entry for entry in sys.path]


def _environment() -> dict[str, str]:
    return {**_MEMORY, **os.environ, **_ONE_THREAD}


_server: ForkServer | None = None


def fork_server() -> ForkServer:
    """Return this process's fork server, started on first use and ended at exit."""
    global _server
    if _server is None or _server.owner != os.getpid() or not _server.alive:
        # A killed server is closed only at exit: its nodes may still work for a run in another thread.
        _server = ForkServer()
        atexit.register(_server.close)
    return _server
