"""Starts node processes from a process that has torch loaded already, so that a node costs a fork, not an
import.

This file knows processes and pipes. It must not know runs: what a child does is `join` of
backends.sockets.node.

Both ends are here. Parent and server speak JSON lines over the server's standard input and output, so the key
is in no command line, environment or file. The server ends when its input does, and its children with it:
however the parent ends, no process stays behind. multiprocessing's own fork server is not used because it
pickles.
"""

from __future__ import annotations

import atexit
import concurrent.futures
import contextlib
import faulthandler
import gc
import importlib
import itertools
import json
import logging
import os
import selectors
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

from simcluster.errors import RunError

_BOOT = (
    "import json, sys; sys.path[:] = json.loads(open(0, 'rb', buffering=0, closefd=False).readline()); "
    "from backends.sockets.forkserver import serve; serve()"
)
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
CLOSE_S = 5.0


class ForkServer:
    """The parent's end. Make one with `fork_server()`, which keeps it for all runs of this process."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._numbers = itertools.count()
        self._pids: dict[int, concurrent.futures.Future[int]] = {}
        self._on_exit: dict[int, Callable[[int], None]] = {}
        self._lock = threading.Lock()
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-c", _BOOT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # a Ctrl-C at the terminal is the parent's to handle
            env={**os.environ, **_ONE_THREAD},
        )
        self._write(_path())
        self._reader = threading.Thread(target=self._read, name="fork server", daemon=True)
        self._reader.start()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None and self._reader.is_alive()

    def spawn(self, on_exit: Callable[[int], None], **request: Any) -> concurrent.futures.Future[int]:
        """Starts a node with `join(**request)`; the future gives its process id.

        *on_exit* is called, in another thread, with the exit code (negative: the signal). The future raises
        RunError if the server is gone.
        """
        number = next(self._numbers)
        started: concurrent.futures.Future[int] = concurrent.futures.Future()
        with self._lock:
            self._pids[number], self._on_exit[number] = started, on_exit
        here = {"path": _path(), "folder": os.getcwd(), "environment": {**os.environ, **_ONE_THREAD}}
        self._write({"spawn": number, "here": here, **request})
        return started

    def kill(self, pid: int) -> None:
        """Kills the process group of child *pid*, if it still lives."""
        self._write({"kill": pid})

    def pause(self, pid: int, paused: bool) -> None:
        """Stops the process group of child *pid*, if it still lives, or lets it go on."""
        self._write({"pause": pid, "paused": paused})

    def close(self) -> None:
        """Ends the server and all its children."""
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
                    self._pids.pop(answer["of"]).set_result(answer["pid"])
                    continue
                on_exit = self._on_exit.pop(answer["of"])
            on_exit(answer["exit"])
        self._fail_pending()

    def _fail_pending(self) -> None:
        with self._lock:
            pending, self._pids = list(self._pids.values()), {}
        for started in pending:
            started.set_exception(RunError("the process that starts nodes has ended: see its messages above"))


def _path() -> list[str]:
    return [os.getcwd() if entry == "" else entry for entry in sys.path]


_server: ForkServer | None = None


def fork_server() -> ForkServer:
    """This process's fork server, started when first asked for and ended when this process ends."""
    global _server
    if _server is None or _server.owner != os.getpid() or not _server.alive:
        if _server is not None and _server.owner == os.getpid():
            atexit.unregister(_server.close)
            _server.close()
        _server = ForkServer()
        atexit.register(_server.close)
    return _server


# the server's end


def serve() -> None:
    """Forks a node for every request on standard input, until that ends."""
    importlib.import_module("torch").set_num_threads(1)
    importlib.import_module("backends.sockets.node")
    answers = os.dup(1)
    os.dup2(2, 1)  # whatever prints does not speak to the parent
    wake_reader, wake_writer = os.pipe()
    os.set_blocking(wake_writer, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(wake_writer)
    private = [answers, wake_reader, wake_writer]
    children: dict[int, int] = {}
    gc.collect()
    gc.freeze()
    pending = b""
    with selectors.DefaultSelector() as selector:
        selector.register(0, selectors.EVENT_READ)
        selector.register(wake_reader, selectors.EVENT_READ)
        while True:
            ready = [key.fd for key, _ in selector.select()]
            if wake_reader in ready:
                os.read(wake_reader, 4096)
                _reap(children, answers)
            if 0 in ready:
                data = os.read(0, 65536)
                if not data:
                    break
                *lines, pending = (pending + data).split(b"\n")
                for line in lines:
                    _obey(json.loads(line), children, private, selector)
    for pid in list(children):
        _signal(pid, signal.SIGKILL)


def _obey(
    request: dict[str, Any], children: dict[int, int], private: list[int], selector: selectors.BaseSelector
) -> None:
    if "kill" in request:
        if request["kill"] in children:
            _signal(request["kill"], signal.SIGKILL)
        return
    if "pause" in request:
        if request["pause"] in children:
            _signal(request["pause"], signal.SIGSTOP if request["paused"] else signal.SIGCONT)
        return
    number = request.pop("spawn")
    preload = request.pop("preload", "")
    if preload and preload not in sys.modules:
        try:
            importlib.import_module(preload)
        except Exception:
            traceback.print_exc()  # the node meets it too, and tells the launcher
    pid = os.fork()
    if pid == 0:
        selector.close()
        _become_node(private, **request)
    children[pid] = number
    _answer(private[0], {"of": number, "pid": pid})


def _become_node(private: list[int], here: dict[str, Any], log_file: str | None, key: str, **request: Any) -> None:
    """The child: never returns."""
    code = 1
    try:
        os.setsid()
        os.chdir(here["folder"])
        os.environ.clear()
        os.environ.update(here["environment"])
        sys.path[:] = here["path"]
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for descriptor in private:
            os.close(descriptor)
        nothing = os.open(os.devnull, os.O_RDWR)
        output = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644) if log_file else nothing
        os.dup2(nothing, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        faulthandler.enable()
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
        code = importlib.import_module("backends.sockets.node").join(key=bytes.fromhex(key), **request)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _reap(children: dict[int, int], answers: int) -> None:
    for pid in list(children):
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)  # whatever it started and left behind
            _answer(answers, {"of": children.pop(pid), "exit": os.waitstatus_to_exitcode(status)})


def _signal(pid: int, number: signal.Signals) -> None:
    for kill in (os.killpg, os.kill):  # a child that was forked just now has no group of its own yet
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, number)


def _answer(answers: int, what: dict[str, int]) -> None:
    try:
        os.write(answers, json.dumps(what).encode() + b"\n")
    except BrokenPipeError:
        return  # the parent is gone; its end of the input will say so too
