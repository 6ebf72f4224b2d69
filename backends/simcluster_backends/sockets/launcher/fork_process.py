"""The process that starts nodes.

Where a fork is safe, this process loads torch first, and each node is a fork that needs no import.
Elsewhere each node is a fresh interpreter; simcluster.process.starting decides. Both ways end in
`_become_node`. simcluster_backends.sockets.launcher.fork_server is at the other end of stdin and
stdout.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import json
import logging
import os
import select
import selectors
import signal
import stat
import sys
import traceback
from collections.abc import Sequence
from typing import Any, Literal, NoReturn

from simcluster.errors import SimclusterError
from simcluster.process.intra_op import use_one_thread
from simcluster.process.loading import compiler_loads, torch_loads
from simcluster.process.platforms import need_unix
from simcluster.process.signals import kill_group
from simcluster.process.starting import begin_process, way_to_start
from simcluster_backends.sockets.launcher.logs import log_file

SignalName = Literal["SIGKILL", "SIGSTOP", "SIGCONT"]
"""A signal to end, stop or resume a process: a name, since numbers differ between machines."""


_NODE = "simcluster_backends.sockets.node.process"
_FRESH = (
    "import json, sys; request = json.loads(open(0, 'rb', closefd=False).readline()); "
    "sys.path[:] = request['here']['path']; "
    "from simcluster_backends.sockets.launcher.fork_process import live; live(request)"
)


def serve() -> None:
    """Obey the requests on stdin: start, forget or signal nodes. Kill all nodes when stdin ends."""
    need_unix("nodes")
    if way_to_start() == "fork":
        _load()
    answers = os.dup(1)
    os.dup2(2, 1)  # prints must not reach the parent
    wake_reader, wake_writer = os.pipe()
    os.set_blocking(wake_writer, False)
    # With a handler, even an empty one, each exit of a child writes a byte that wakes the selector.
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(wake_writer)
    private = [answers, wake_reader, wake_writer]
    children: dict[int, int] = {}
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
                data, ended = _all_there_is()
                if ended:
                    break
                *lines, pending = (pending + data).split(b"\n")
                requests = [json.loads(line) for line in lines]
                forgotten = {request["forget"] for request in requests if "forget" in request}
                for request in requests:
                    if "forget" not in request and request.get("spawn") not in forgotten:
                        _obey(request, children, private, selector)
    for pid in list(children):
        signal_group(pid, "SIGKILL")


def _load() -> None:
    """Load the modules that every node needs."""
    with torch_loads():
        use_one_thread()
        importlib.import_module(_NODE)


def _all_there_is() -> tuple[bytes, bool]:
    """Return (the data on stdin that can be read without blocking, whether stdin has ended).

    Read everything, so that a "forget" is seen before the request that it cancels is obeyed.
    """
    data = b""
    while piece := os.read(0, 65536):
        data += piece
        if not select.select([0], [], [], 0)[0]:
            return data, False
    return data, True


def _obey(
    request: dict[str, Any], children: dict[int, int], private: list[int], selector: selectors.BaseSelector
) -> None:
    if "signal" in request:
        if request["to"] in children:
            signal_group(request["to"], request["signal"])
        return
    need_unix("nodes")
    number = request.pop("spawn")
    preloads = request.pop("preloads", [])
    if way_to_start(request["here"]["environment"]) == "spawn":
        pid = _spawn(request)
    else:
        if _NODE not in sys.modules:
            _load()
        _preload(preloads)
        pid = os.fork()
        if pid == 0:
            selector.close()
            _become_node(private, preloads, **request)
    children[pid] = number
    _answer(private[0], {"of": number, "pid": pid})


def _preload(modules: Sequence[str]) -> None:
    """Import *modules* before the fork, so that nodes need not import them."""
    with compiler_loads():
        for module in modules:
            try:
                importlib.import_module(module)
            except Exception:
                traceback.print_exc()  # the node fails at the same import and reports it


def _spawn(request: dict[str, Any]) -> int:
    """Start a fresh interpreter as the node of *request*; return its process id.

    The interpreter reads *request*, which holds the key, from its stdin.
    """
    need_unix("nodes")
    reader, writer = os.pipe()
    duplicated = [(os.POSIX_SPAWN_DUP2, reader, 0)]  # and stdout and stderr, but no other file
    environment = request["here"]["environment"]
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", _FRESH], environment, file_actions=duplicated)
    os.close(reader)
    with contextlib.suppress(BrokenPipeError), open(writer, "wb") as pipe:  # it has ended if broken
        pipe.write(json.dumps(request).encode() + b"\n")
    return pid


def live(request: dict[str, Any]) -> None:
    """Run the node of *request* in this fresh interpreter; never return."""
    _become_node([], [], **request)


def _become_node(
    private: list[int], preloads: list[str], here: dict[str, Any], log_file: str | None, key: str, **request: Any
) -> None:
    """Run a node in this new process; never return.

    Close the descriptors *private*, which belong to the fork server.
    """
    need_unix("nodes")
    code = 1
    try:
        os.setsid()  # a process group of its own, so that all processes of the node can be killed
        os.chdir(here["folder"])
        os.environ.clear()
        os.environ.update(here["environment"])
        sys.path[:] = here["path"]
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for descriptor in private:
            os.close(descriptor)
        nothing = os.open(os.devnull, os.O_RDWR)
        output = _open_log(log_file) if log_file else nothing
        os.dup2(nothing, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        if _NODE not in sys.modules:
            _load()
        begin_process(preloads)
        faulthandler.enable()
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
        code = importlib.import_module(_NODE).join(key=bytes.fromhex(key), tells=False, **request)
    except SimclusterError as error:
        from simcluster_backends.sockets.wire.handshake import RUN_IS_OVER  # imports torch

        if RUN_IS_OVER not in str(error):
            print(f"error: {type(error).__name__}: {error}")
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _open_log(file: str) -> int:
    """Open the log *file* and return its descriptor. If that fails, end this process.

    The file may be a named pipe, which the launcher's agent on this machine reads.
    """
    need_unix("nodes")
    try:
        if stat.S_ISFIFO(os.lstat(file).st_mode):
            number = os.open(file, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK)  # fails without a reader
            os.set_blocking(number, True)
            return number
    except FileNotFoundError:
        pass  # a regular file is created
    except OSError as error:
        _end_without(file, error)
    try:
        return log_file(file)
    except FileNotFoundError:
        os._exit(1)  # the launcher has exited and removed its directory
    except OSError as error:
        _end_without(file, error)


def _end_without(file: str, error: OSError) -> NoReturn:
    print(f"node exits: cannot open its log {file} ({error.strerror})", file=sys.stderr, flush=True)
    os._exit(1)


def _reap(children: dict[int, int], answers: int) -> None:
    need_unix("nodes")
    for pid in list(children):
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            kill_group(pid)  # end processes that the node left running
            _answer(answers, {"of": children.pop(pid), "exit": os.waitstatus_to_exitcode(status)})


def _answer(answers: int, what: dict[str, int]) -> None:
    try:
        os.write(answers, json.dumps(what).encode() + b"\n")
    except BrokenPipeError:
        return  # the parent is gone; stdin will end too


def signal_group(pid: int, name: SignalName) -> None:
    """Send the signal *name* to the process group of *pid*, if it still runs."""
    need_unix("nodes")
    for kill in (os.killpg, os.kill):  # a child forked just now has no group yet
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.Signals[name])
