"""Question one machine with the same command, run here or over ssh, that starts a run's nodes."""

from __future__ import annotations

import asyncio
import contextlib
import time
from asyncio.subprocess import Process
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from simcluster.process.signals import kill_group
from simcluster_backends.sockets.launcher.agent_process import CLOSE_S, LAST_LINES, kill_agent, next_line, start_agent
from simcluster_backends.sockets.launcher.machine_messages import (
    ClockReading,
    ClockRequest,
    ExamineOrder,
    Fingerprint,
    MachineFacts,
    MachineReport,
    ToMachine,
    line_of,
    read_from_machine,
)

PINGS = 8

M = TypeVar("M", MachineReport, ClockReading, MachineFacts)


@dataclass
class MachineAnswers:
    """The answers of a machine. If some are missing, *failure* has the reason.

    *lines* has the last lines that the machine printed. *clock_offset_s* is its clock minus this
    machine's clock, accurate to *clock_error_s*.
    """

    fingerprint: Fingerprint | None = None
    clock_offset_s: float | None = None
    clock_error_s: float | None = None
    facts: MachineFacts | None = None
    failure: str = ""
    exit_code: int | None = None
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=LAST_LINES))

    @property
    def said(self) -> str:
        return "; ".join(self.lines)


async def probe(command: Sequence[str], question: ExamineOrder, timeout_s: float) -> MachineAnswers:
    """Run *command*, which starts the agent of a machine, and return the answers to *question*.

    This takes at most *timeout_s*, plus the time until the command's processes have ended.
    """
    answers = MachineAnswers()
    try:
        process = await start_agent(command)
    except OSError as error:
        answers.failure = str(error)
        return answers
    listening = asyncio.create_task(_keep(process, answers))
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


async def _ask(process: Process, question: ExamineOrder, answers: MachineAnswers) -> None:
    answers.fingerprint = (await _next(process, MachineReport, answers)).fingerprint
    for number in range(PINGS):
        asked_s = time.time()
        began_s = time.perf_counter()
        _send(process, ClockRequest(number))
        there_s = (await _next(process, ClockReading, answers)).time_s
        took_s = time.perf_counter() - began_s
        if answers.clock_error_s is None or took_s / 2 < answers.clock_error_s:
            # The machine read its clock between question and answer: assume halfway, as NTP does.
            answers.clock_error_s = took_s / 2
            answers.clock_offset_s = there_s - (asked_s + took_s / 2)
    _send(process, question)
    answers.facts = await _next(process, MachineFacts, answers)


def _send(process: Process, message: ToMachine) -> None:
    assert process.stdin is not None
    process.stdin.write(line_of(message))


async def _next(process: Process, kind: type[M], answers: MachineAnswers) -> M:
    """Return the next message of *kind*; note lines of other output. Raise EOFError at the end."""
    while line := await next_line(process.stdout):
        message = read_from_machine(line)
        if isinstance(message, kind):
            return message
        if message is None:
            _note(line, answers)
    raise EOFError


async def _keep(process: Process, answers: MachineAnswers) -> None:
    while line := await next_line(process.stderr):
        _note(line, answers)


def _note(line: bytes, answers: MachineAnswers) -> None:
    if text := line[:1000].decode(errors="replace").strip():
        answers.lines.append(text)


async def _end(process: Process) -> None:
    """Close the agent's stdin, which ends it, and kill it if it has not ended after CLOSE_S."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        await asyncio.wait_for(process.wait(), CLOSE_S)
    except TimeoutError:
        await kill_agent(process)
    except asyncio.CancelledError:
        kill_group(process.pid)
        raise
