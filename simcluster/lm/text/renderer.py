"""Render chat templates in a separate process, so that the system can limit its time and memory.

No check inside Python bounds a template: it can double strings and nest lists, and a single
operation can fill the memory.
"""

from __future__ import annotations

import atexit
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from threading import Lock
from typing import Any, Final

from simcluster.lm.extra import need_extra
from simcluster.process.platforms import need_unix

CPU_S: Final = 2.0
MEMORY_BYTES: Final = 512 * 2**20
MOST_CHARACTERS: Final = 2**22
"""Limits on a conversation's CPU time, its output's characters, and the memory of the process."""

PROGRAM: Final = "simcluster.lm.text.template"

_lock = Lock()


def rendered(source: str, messages: Sequence[Mapping[str, str]], variables: Mapping[str, Any]) -> str:
    """Return what the template *source* prints for *messages*, as described in PROGRAM.

    Raise ValueError if the template is malformed, refuses the messages, or exceeds a limit.
    """
    with _lock:
        process = _process()
        assert process.stdin is not None
        assert process.stdout is not None
        request = {"source": source, "messages": messages, "variables": variables}
        with suppress(BrokenPipeError):
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        if not (line := process.stdout.readline()):
            process.communicate()
            _process.cache_clear()
            took = f"{CPU_S:g} s or {MEMORY_BYTES:,} bytes of memory"
            raise ValueError(f"it takes more than {took}: its process ended with {process.returncode}")
    answer = json.loads(line)
    if "error" in answer:
        raise ValueError(answer["error"])
    return str(answer["text"])


@lru_cache(maxsize=1)
def _process() -> subprocess.Popen[bytes]:
    """Return the process. It exits when its input is closed, and a Ctrl-C does not reach it."""
    need_unix("a chat template")
    need_extra("jinja2")
    pipe = subprocess.PIPE
    process = subprocess.Popen(  # noqa: S603 - a module of this package
        [sys.executable, "-m", PROGRAM], stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, start_new_session=True
    )
    atexit.register(process.communicate)
    return process
