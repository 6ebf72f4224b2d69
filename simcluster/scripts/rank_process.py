"""Start a rank's process for a node program, exchange messages with it, and end it."""

from __future__ import annotations

import logging
import multiprocessing
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import forkserver, resource_tracker, util
from types import ModuleType
from typing import Any

import msgspec

from simcluster.process.platforms import need_unix
from simcluster.process.signals import kill_group
from simcluster.process.starting import way_to_start
from simcluster.scripts.arena import SharedArena, memory_folder
from simcluster.scripts.messages import ClusterAnswer, FromRank, RankStart
from simcluster.scripts.rank.main import run_rank

END_S = 5.0
SILENT_S, ANSWER_S = 30.0, 2.0
"""Limits on waiting for a rank.

After SILENT_S without a message, a warning reports the line that its script is at. The rank has
ANSWER_S to report that line.
"""

_LEAST_PRELOADED = ["simcluster.scripts.rank_process", "simcluster.scripts.rank.main"]
PRELOADED = [*_LEAST_PRELOADED, "torch._dynamo", "torch.distributed.fsdp", "torch.distributed.tensor"]
_SIMULATED = ["simcluster.scripts.rank.cuda_stand_in", "simcluster.scripts.rank.shape_mode"]
"""Modules that most scripts need. They are loaded once, in the process that ranks are forked from,
to save time and memory.

A real node runs only one rank, so it preloads only _LEAST_PRELOADED.
"""

log = logging.getLogger("simcluster.scripts")


class RankProcess:
    """A process that runs a script.

    If forking is safe, the process is forked from one that has already loaded torch.
    """

    def __init__(self, start: RankStart) -> None:
        self._start = start
        self._memory = memory_folder()
        self.arena = SharedArena(self._memory)
        context = _context(is_simulated=start.run.is_simulated)
        self._asked, asking = context.Pipe(duplex=False)
        answers, self._answering = context.Pipe(duplex=False)
        lifeline, self._lifeline = context.Pipe(duplex=False)
        self._places, places = context.Pipe(duplex=False)
        given = (start, self._memory, asking, answers, lifeline, places)
        self._process = context.Process(target=run_rank, args=given, name="script")
        with _without_main():
            self._process.start()
        for end in (asking, answers, lifeline, places, start.output):
            end.close()
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode: Callable[[bytes], FromRank] = msgspec.msgpack.Decoder(FromRank).decode

    def next(self) -> FromRank:
        """Wait for the next message and return it. Raise EOFError if the process ends without
        sending one.
        """
        if not self._asked.poll(SILENT_S):
            self._warn_of_silence()
        return self._decode(self._asked.recv_bytes())

    def _warn_of_silence(self) -> None:
        where = "a place that it does not tell"
        with suppress(OSError, EOFError):  # the process may have just ended
            self._lifeline.send_bytes(b"where")
            if self._places.poll(ANSWER_S):
                where = self._places.recv_bytes().decode() or where
        log.warning("rank %d has not called for %g s: it is at %s", self._start.rank, SILENT_S, where)

    def answer(self, answer: ClusterAnswer) -> None:
        """Send *answer* to the process, unless it has ended."""
        with suppress(OSError):
            self._answering.send_bytes(self._encode(answer))

    @property
    def exit_code(self) -> int | None:
        """The exit code of the process, or the negative number of the signal that ended it."""
        self._process.join(END_S)
        return self._process.exitcode  # type: ignore[no-any-return]

    def end(self) -> None:
        """Kill the process and all processes that it has started, and remove the shared memory."""
        if self._process.pid is not None:
            kill_group(self._process.pid)
        self._process.kill()  # in case it has no process group yet
        self._process.join()
        for pipe in (self._asked, self._answering, self._lifeline, self._places):
            pipe.close()
        shutil.rmtree(self._memory, ignore_errors=True)


def get_ready(*, is_simulated: bool) -> None:
    """Start the process that ranks are forked from, and wait until it has loaded torch."""
    if way_to_start() == "fork":
        with _without_main():
            nothing = _context(is_simulated=is_simulated).Process()
            nothing.start()
        nothing.join()


def before_threads() -> None:
    """Fork a server process from this process, which has loaded torch; ranks are forked from the
    server.

    This process must not have started any threads.
    """
    if way_to_start() == "fork":
        resource_tracker.ensure_running()
        start, util.spawnv_passfds = util.spawnv_passfds, _fork
        try:
            forkserver.ensure_running()
        finally:
            util.spawnv_passfds = start


def _fork(path: object, args: Sequence[Any], passfds: Sequence[int]) -> int:
    """Fork this process, run the Python code in the last of *args* in the child, and return the
    child's id.
    """
    need_unix("forks")
    number = os.fork()
    if number == 0:
        try:
            for descriptor in {*map(int, os.listdir("/dev/fd"))} - {0, 1, 2, *passfds}:
                with suppress(OSError):  # the descriptor of the listing itself is closed already
                    os.close(descriptor)
            exec(args[-1])  # noqa: S102, the standard library's own command
        finally:
            os._exit(0)
    return number


def _context(*, is_simulated: bool) -> Any:
    forks = way_to_start() == "fork"
    if forks:
        forkserver.set_forkserver_preload([*PRELOADED, *_SIMULATED] if is_simulated else _LEAST_PRELOADED)
    return multiprocessing.get_context("forkserver" if forks else "spawn")


@contextmanager
def _without_main() -> Iterator[None]:
    """Hide the main module within the block, since processes that multiprocessing starts would run
    it, too.
    """
    main, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
