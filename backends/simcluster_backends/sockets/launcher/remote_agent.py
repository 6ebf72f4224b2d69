"""`simcluster node NAME --launched`: the agent on a machine that a launcher has reached by ssh.

The agent reports the installed software, answers `simcluster doctor`, takes one StartOrder, starts
the nodes in it and forwards their output. Its stdin is the launcher's lease: when stdin ends, for
whatever reason, the agent kills all nodes with their process groups. If the agent itself is killed,
the fork server does so. The key stays in memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

from simcluster.documents.user_code import place_below
from simcluster.process.platforms import need_unix
from simcluster.process.starting import way_to_start
from simcluster_backends.sockets.launcher.facts import examine
from simcluster_backends.sockets.launcher.fork_server import ForkServer, fork_server
from simcluster_backends.sockets.launcher.machine_messages import (
    ORDER_LIMIT_BYTES,
    ClockReading,
    ClockRequest,
    ExamineOrder,
    FromMachine,
    MachineReport,
    NodeAddress,
    OutputLine,
    ProcessExit,
    StartOrder,
    ToMachine,
    fingerprint,
    line_of,
    read_to_machine,
)
from simcluster_backends.sockets.net.addresses import listen_towards

LINE_BYTES = 8192
"""The limit on a line of output: longer lines are split."""

READ_BYTES = 65536


def serve_launcher() -> int:
    """Run the agent; return its exit code. Raise UsageError if this machine can start no nodes."""
    need_unix("nodes")
    way_to_start()  # before any answer: the launcher then shows the error as the reason
    out = os.dup(1)
    os.dup2(2, 1)  # prints must not reach the launcher
    with tempfile.TemporaryDirectory(prefix="simcluster-", ignore_cleanup_errors=True) as folder:
        return asyncio.run(_RunningOrder(out, Path(folder)).live())


class Pipe:
    """A named pipe for a node's output; *say* is called with each line."""

    descriptor: int

    def __init__(self, path: Path, say: Callable[[str], None]) -> None:
        self.path = path
        self._say = say
        self._begun = b""
        need_unix("nodes")
        os.mkfifo(path, 0o600)
        # Open it for writing, too: with a writer left, a read never reaches the end of file.
        self.descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)

    def read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self.descriptor, READ_BYTES):
                *lines, self._begun = (self._begun + data).split(b"\n")
                for line in lines:
                    self._pass_on(line)
                while len(self._begun) >= LINE_BYTES:
                    self._pass_on(self._begun[:LINE_BYTES])
                    self._begun = self._begun[LINE_BYTES:]

    def close(self) -> None:
        """Pass on the rest of the output and close the pipe."""
        self.read()
        if self._begun:
            self._pass_on(self._begun)
        os.close(self.descriptor)

    def _pass_on(self, line: bytes) -> None:
        for start in range(0, max(1, len(line)), LINE_BYTES):
            self._say(line[start : start + LINE_BYTES].decode(errors="replace").rstrip("\r"))


class _RunningOrder:
    """The work of an agent: it waits for an order, and runs its nodes until the last one exits."""

    _loop: asyncio.AbstractEventLoop

    def __init__(self, out: int, folder: Path) -> None:
        self._out = out
        self._folder = folder
        self._over = asyncio.Event()
        self._server: ForkServer | None = None
        self._pipes: dict[str, Pipe] = {}
        self._pids: dict[str, int] = {}
        self._codes: dict[str, int | None] = {}

    async def live(self) -> int:
        need_unix("nodes")
        self._loop = asyncio.get_running_loop()
        self._order: asyncio.Future[StartOrder] = self._loop.create_future()
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            self._loop.add_signal_handler(number, self._over.set)
        self._say(MachineReport(fingerprint()))
        threading.Thread(target=self._listen, name="launcher", daemon=True).start()
        over = asyncio.create_task(self._over.wait())
        try:
            ways: list[asyncio.Future[Any]] = [over, self._order]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            if not self._order.done():
                return 1  # the launcher does not need this machine
            self._start(self._order.result())
            await over
        finally:
            over.cancel()
            if self._server is not None:
                self._server.close()
        return max((1 if code is None else abs(code) for code in self._codes.values()), default=1)

    # carrying out a StartOrder

    def _start(self, order: StartOrder) -> None:
        files, secrets = self._folder / "files", self._folder / "tls"
        for path, content in order.files.items():
            _write(place_below(files, Path(path)), content)
        for name, content in order.secrets.items():
            _write(secrets / Path(name).name, content)
        self._server = fork_server()
        for place in order.nodes:
            self._start_node(place, order, str(files), str(secrets) if order.secrets else None)

    def _start_node(self, place: NodeAddress, order: StartOrder, files: str, tls: str | None) -> None:
        assert self._server is not None
        pipe = Pipe(
            self._folder / f"{len(self._pipes)}.pipe",
            lambda line: self._say(OutputLine(place.name, line)),
        )
        self._pipes[place.name] = pipe
        self._loop.add_reader(pipe.descriptor, pipe.read)
        start = self._server.spawn(
            lambda code: self._call(lambda: self._exited(place.name, code)),
            name=place.name,
            rendezvous=order.rendezvous,
            listen=listen_towards(place.listen, order.rendezvous),
            key=order.key,
            log_file=str(pipe.path),
            files=files,
            tls=tls,
            preloads=order.preloads,
        )
        start.add_done_callback(lambda start: self._call(lambda: self._started(place.name, start)))

    def _started(self, name: str, start: Future[int]) -> None:
        if start.exception() is not None:
            self._exited(name, None)
        else:
            self._pids[name] = start.result()

    def _exited(self, name: str, code: int | None) -> None:
        if name in self._codes:
            return
        self._codes[name] = code
        pipe = self._pipes[name]
        self._loop.remove_reader(pipe.descriptor)
        pipe.close()
        self._say(ProcessExit(name, code))
        if self._codes.keys() == self._pipes.keys():
            self._over.set()

    def _call(self, action: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has been closed
            self._loop.call_soon_threadsafe(action)

    # messages from and to the launcher

    def _listen(self) -> None:
        """Read messages in a thread, because an event loop cannot wait for every kind of stdin."""
        while line := sys.stdin.buffer.readline(ORDER_LIMIT_BYTES):
            self._call(partial(self._hear, read_to_machine(line)))
        self._call(self._over.set)

    def _hear(self, message: ToMachine | None) -> None:
        if isinstance(message, StartOrder):
            if not self._order.done():
                self._order.set_result(message)
        elif isinstance(message, ClockRequest):
            self._say(ClockReading(message.number, time.time()))
        elif isinstance(message, ExamineOrder):
            threading.Thread(target=self._examine, args=(message,), name="examination", daemon=True).start()
        elif message is not None and self._server is not None and message.node in self._pids:
            self._server.signal(self._pids[message.node], message.name)

    def _examine(self, question: ExamineOrder) -> None:
        facts = examine(question)
        self._call(lambda: self._say(facts))

    def _say(self, message: FromMachine) -> None:
        data = line_of(message)
        try:
            while data:
                data = data[os.write(self._out, data) :]
        except OSError:
            self._over.set()  # the launcher is gone


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
