"""Commands of simcluster in processes: one process per command, or one that runs them in turn.

`python -m tools.swarm_real.launcher` is the process that runs commands in turn. It keeps the
process that forks nodes, so a run need not import anything again.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import psutil

from tests.support.root import ROOT

MARK: Final = "SWARM_REAL_MARK"
"""The name of an environment variable that marks all processes of a launcher's commands."""


class Launcher:
    """A runner of commands of the simcluster in *library*.

    If it *stays*, one process runs all commands. Otherwise, each command gets a new process.
    """

    def __init__(self, *, stays: bool, library: Path = ROOT) -> None:
        self.mark = secrets.token_hex(8)
        self._stays, self._library = stays, library
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self, words: Sequence[str], said: Path, environment: Mapping[str, str]) -> None:
        """Start `simcluster` with the arguments *words*.

        Its output is appended to the file *said*.
        """
        if self._stays:
            if self._process is None or self._process.poll() is not None:
                self.close()
                self._process = self._start([sys.executable, "-m", "tools.swarm_real.launcher"], {}, subprocess.PIPE)
            order = {"words": list(words), "said": str(said), "environment": dict(environment)}
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()
            return
        with said.open("ab") as file:
            self._process = self._start([sys.executable, "-m", "simcluster", *words], environment, file)

    def ended(self) -> int | None:
        """Return the exit code of the command, or None if it has not ended."""
        assert self._process is not None
        if not self._stays:
            return self._process.poll()
        assert self._process.stdout is not None
        if select.select([self._process.stdout], [], [], 0)[0]:
            line = self._process.stdout.readline()
            return int(line) if line else self._process.wait()
        return None

    def left(self) -> list[psutil.Process]:
        """Return the processes that are still alive, except those that stay for the next
        command.
        """
        kept = set(self._kept())
        return [process for process in self._marked() if process.pid not in kept]

    def ports(self) -> list[int]:
        """Return the ports on which the processes that stay are listening."""
        found = []
        for pid in self._kept():
            with suppress(psutil.Error):
                connections = psutil.Process(pid).net_connections("inet")
                found += [one.laddr.port for one in connections if one.status == psutil.CONN_LISTEN]
        return found

    def close(self) -> None:
        """Kill all processes of all commands."""
        for process in self._marked():
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        if self._process is not None:
            with self._process:  # closes its pipes
                self._process = None

    # Internal.

    def _start(self, command: Sequence[str], environment: Mapping[str, str], out: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            cwd=self._library,
            env={**os.environ, **environment, MARK: self.mark, "PYTHONPATH": str(Path(self._library) / "backends")},
            stdin=subprocess.PIPE if self._stays else subprocess.DEVNULL,
            stdout=out,
            stderr=None if self._stays else out,
            start_new_session=True,
        )

    def _kept(self) -> Iterator[int]:
        """Yield the ids of the process that stays and of its child that forks nodes."""
        if not self._stays or self._process is None:
            return
        yield self._process.pid
        with suppress(psutil.Error):
            for child in psutil.Process(self._process.pid).children():
                if any("simcluster_backends.sockets.launcher.fork_process" in word for word in child.cmdline()):
                    yield child.pid

    def _marked(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                if process.status() != psutil.STATUS_ZOMBIE and self._is_marked(process.pid):
                    found.append(process)
        return found

    def _is_marked(self, pid: int) -> bool:
        return f"{MARK}={self.mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


def serve() -> None:
    """Run the commands that arrive on standard input, each as a line of JSON.

    Write each command's exit code as a line when the command ends.
    """
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    from simcluster.cli.app import main

    while line := sys.stdin.buffer.readline():
        order = json.loads(line)
        os.environ.update(order["environment"])
        sys.argv = ["simcluster", *order["words"]]
        code: object = 0
        with open(order["said"], "a") as said:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
            sys.stdout = sys.stderr = said
            try:
                main()
            except SystemExit as end:
                code = end.code
        answers.write(b"%d\n" % (code if isinstance(code, int) else int(code is not None)))


if __name__ == "__main__":
    serve()
