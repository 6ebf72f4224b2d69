"""A command, started as a shell does with or without a terminal, and all its child processes."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.socket_runs import ROOT

MARK = "SIMCLUSTER_TRIAL"
"""The name of an environment variable that all processes of a trial's command inherit."""

CONTROL_C = b"\x03"
LOAD = "while True: pass"


class Command:
    """A running `simcluster` with *arguments* in *folder*.

    With *terminal*, its standard input and errors are a terminal.
    """

    def __init__(self, arguments: Sequence[str], folder: Path, *, terminal: bool = False) -> None:
        self._mark = f"{os.getpid()}-{time.monotonic_ns()}"
        self._master: int | None = None
        self._output = bytearray()
        self._err = folder / "err.txt"
        with (folder / "out.txt").open("ab") as out, self._err.open("wb") as err:
            slave = err.fileno()
            if terminal:
                self._master, slave = pty.openpty()
                _without_echo(slave)

            def become() -> None:
                # If a shell started this process in the background, it ignores SIGINT, and so would
                # the command.
                signal.signal(signal.SIGINT, signal.SIG_DFL)
                if terminal:
                    fcntl.ioctl(2, termios.TIOCSCTTY, 0)

            script = Path(sys.executable).with_name("simcluster")
            command = [str(script)] if script.exists() else [sys.executable, "-m", "simcluster"]
            self._process = subprocess.Popen(
                [*command, *arguments], cwd=folder, stdin=slave if terminal else subprocess.DEVNULL, stdout=out,
                stderr=slave, start_new_session=True, preexec_fn=become,
                env={**os.environ, MARK: self._mark, "PYTHONPATH": str(ROOT)},
            )  # fmt: skip
        if terminal:
            os.close(slave)
            self._reader = threading.Thread(target=self._read, daemon=True)
            self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def cpu_s(self) -> float:
        """The CPU seconds of the command's own process."""
        try:
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def press(self) -> None:
        """Act like Ctrl-C at a terminal: send SIGINT to the foreground process group."""
        if self._master is not None:
            os.write(self._master, CONTROL_C)
            return
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGINT)

    def code(self, within_s: float) -> int | None:
        """Return the exit code, or None if the command is still running after *within_s*."""
        try:
            return self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            return None

    def said(self) -> str:
        """Return what the command wrote to standard error. The command must have ended."""
        if self._master is not None:
            self._reader.join(5.0)
            return self._output.decode(errors="replace")
        return self._err.read_text(errors="replace")

    def left(self, within_s: float = 0.0) -> dict[int, str]:
        """Return process id -> command line, for the trial's processes that survive *within_s*."""
        until_s = time.monotonic() + within_s
        while (found := marked(self._mark)) and time.monotonic() < until_s:
            time.sleep(0.05)
        return found

    def close(self) -> None:
        """Kill all remaining processes of the command."""
        for pid in [self.pid, *self.left()]:
            if pid != self.pid or not self.has_ended:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self._process.wait()
        if self._master is not None:
            self._reader.join(5.0)
            os.close(self._master)

    def _read(self) -> None:
        assert self._master is not None
        with suppress(OSError):  # Linux raises OSError when the other end is closed
            while data := os.read(self._master, 4096):
                self._output += data


def marked(mark: str) -> dict[int, str]:
    """Return process id -> command line, for all processes that carry *mark*."""
    wanted = f"{MARK}={mark}".encode()
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    line = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
                    found[int(folder.name)] = line.decode(errors="replace").strip()
    return found


@contextmanager
def busy(loops: int) -> Iterator[None]:
    """Keep *loops* processes busy until the end of the block."""
    running = [subprocess.Popen([sys.executable, "-c", LOAD]) for _ in range(loops)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def _without_echo(terminal: int) -> None:
    settings = termios.tcgetattr(terminal)
    settings[3] &= ~termios.ECHO
    termios.tcsetattr(terminal, termios.TCSANOW, settings)
