"""One machine, asked as a run would start nodes there: by the same command, over the same ssh."""

from __future__ import annotations

import asyncio
import contextlib
import time
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from simcluster.process.signals import kill_group
from simcluster_backends.sockets.launcher import orders

PINGS = 8
CLOSE_S = 3.0
LAST_LINES = 3

M = TypeVar("M", orders.MachineReport, orders.ClockReading, orders.MachineFacts)


@dataclass
class MachineAnswers:
    """A machine's answers until the time was up. *failure*: why the rest is missing, with its last *lines*."""

    fingerprint: orders.Fingerprint | None = None
    clock_offset_s: float | None = None
    clock_error_s: float | None = None
    facts: orders.MachineFacts | None = None
    failure: str = ""
    exit_code: int | None = None
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=LAST_LINES))

    @property
    def said(self) -> str:
        return "; ".join(self.lines)


async def probe(command: Sequence[str], question: orders.ExamineOrder, timeout_s: float) -> MachineAnswers:
    """Run *command*, which starts the agent of a machine, and return its answers; its processes have then ended."""
    answers = MachineAnswers()
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, stderr=PIPE, limit=orders.LINE_LIMIT_BYTES, start_new_session=True
        )
    except OSError as error:
        answers.failure = f"{command[0]} cannot be started: {error.strerror}"
        return answers
    assert process.stderr is not None
    listening = asyncio.create_task(_keep(process.stderr, answers))
    try:
        async with asyncio.timeout(timeout_s):
            await _ask(process, question, answers)
    except TimeoutError:
        answers.failure = f"no answer within {timeout_s:g} s"
    except EOFError:
        with contextlib.suppress(TimeoutError):
            answers.exit_code = await asyncio.wait_for(process.wait(), CLOSE_S)
        await asyncio.wait([listening], timeout=CLOSE_S)
        answers.failure = f"ended with exit code {answers.exit_code}"
    finally:
        await _end(process)
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
    return answers


async def _ask(process: Process, question: orders.ExamineOrder, answers: MachineAnswers) -> None:
    answers.fingerprint = (await _next(process, orders.MachineReport, answers)).fingerprint
    for number in range(PINGS):
        asked_s = time.time()
        began_s = time.perf_counter()
        _send(process, orders.ClockRequest(number))
        there_s = (await _next(process, orders.ClockReading, answers)).time_s
        took_s = time.perf_counter() - began_s
        if answers.clock_error_s is None or took_s / 2 < answers.clock_error_s:
            # The machine read its clock at some moment between question and answer.
            answers.clock_error_s = took_s / 2
            answers.clock_offset_s = there_s - (asked_s + took_s / 2)
    _send(process, question)
    answers.facts = await _next(process, orders.MachineFacts, answers)


def _send(process: Process, message: orders.ToMachine) -> None:
    assert process.stdin is not None
    process.stdin.write(orders.line_of(message))


async def _next(process: Process, kind: type[M], answers: MachineAnswers) -> M:
    """Return the next message of *kind*; keep other lines. Raise EOFError."""
    assert process.stdout is not None
    while line := await _line(process.stdout):
        message = orders.read_from_machine(line)
        if isinstance(message, kind):
            return message
        if message is None:
            _note(line, answers)
    raise EOFError


async def _keep(stream: asyncio.StreamReader, answers: MachineAnswers) -> None:
    while line := await _line(stream):
        _note(line, answers)


async def _line(stream: asyncio.StreamReader) -> bytes:
    """Return the next line, or a piece of one that is too long; b"" at the end."""
    try:
        return await stream.readuntil(b"\n")
    except asyncio.IncompleteReadError as end:
        return end.partial
    except asyncio.LimitOverrunError as error:
        return await stream.read(max(1, error.consumed))


def _note(line: bytes, answers: MachineAnswers) -> None:
    if text := line[:1000].decode(errors="replace").strip():
        answers.lines.append(text)


async def _end(process: Process) -> None:
    """End the agent, which leaves when its stdin closes, and kill what has not ended soon after."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        await asyncio.wait_for(process.wait(), CLOSE_S)
    except TimeoutError:
        kill_group(process.pid)  # ssh and any proxy commands
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), CLOSE_S)
    except asyncio.CancelledError:
        kill_group(process.pid)
        raise
