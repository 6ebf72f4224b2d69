"""The gloo rank next to a node: a process that reads and writes lines of JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from types import TracebackType
from typing import Any

from simcluster.errors import RunError

END_S = 5.0
PROGRAM = "simcluster.bench.transport.gloo"


class Companion:
    """A process that ends with its `with` block, or with its parent process, when its input ends."""

    def __init__(self, rank: int, size: int) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - this Python, and two numbers
            [sys.executable, "-m", PROGRAM, str(rank), str(size)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        """Return its answer, blocking. Raises RunError if it has ended instead."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            code = self._process.wait(END_S)
            raise RunError(f"a process with gloo ended with exit code {code} when asked {request}; it says why above")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __enter__(self) -> Companion:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if kind is not None:
            self._process.kill()
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
