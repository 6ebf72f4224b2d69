"""The local process that leads to a machine's agent: ssh, or the agent itself on this machine."""

from __future__ import annotations

import asyncio
import contextlib
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence

from simcluster.process.signals import kill_group
from simcluster_backends.sockets.launcher.machine_messages import LINE_LIMIT_BYTES

CLOSE_S = 3.0
LAST_LINES = 3


async def start_agent(command: Sequence[str]) -> Process:
    """Start *command* in a new session, so that a Ctrl-C at the terminal does not reach it.

    Raise OSError with a message for the user.
    """
    try:
        return await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, stderr=PIPE, limit=LINE_LIMIT_BYTES, start_new_session=True
        )
    except OSError as error:
        raise OSError(f"{command[0]} cannot be started: {error.strerror}") from error


async def next_line(stream: asyncio.StreamReader | None) -> bytes:
    """Return the next line, or a piece of a line that is too long; b"" at the end."""
    assert stream is not None
    try:
        return await stream.readuntil(b"\n")
    except asyncio.IncompleteReadError as end:
        return end.partial
    except asyncio.LimitOverrunError as error:
        return await stream.read(max(1, error.consumed))


async def kill_agent(process: Process) -> None:
    """Kill *process* and ssh's proxy commands in its group; wait up to CLOSE_S for its exit."""
    kill_group(process.pid)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), CLOSE_S)
