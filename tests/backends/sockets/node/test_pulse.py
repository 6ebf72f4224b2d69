"""Whether a loop turns, asked from another thread, and where it is stuck."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import threading
from collections.abc import Callable

import pytest
from simcluster_backends.sockets.node import report as pulse_module
from simcluster_backends.sockets.node.report import Pulse, place


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that a Pulse sees: a list whose only element the test sets."""
    now = [100.0]
    monkeypatch.setattr(pulse_module.time, "monotonic", lambda: now[0])
    return now


def test_a_loop_that_turns_is_never_stalled_and_one_that_does_not_is_for_as_long_as_that(clock: list[float]) -> None:
    async def main() -> list[float]:
        pulse = Pulse(asyncio.get_running_loop(), interval_s=0.5)
        seen = []
        for turns in (True, True, False, False, False, False, True, True):
            clock[0] += 0.5
            seen.append(pulse.stalled()[0])
            if turns:
                await asyncio.sleep(0)
        return seen

    # Asked at 0.5, 1.0 and 1.5 s; the last one is answered after 3.5 s, and what is below 1 s is not told.
    assert asyncio.run(main()) == [0.0, 0.0, 0.0, 0.0, 1.0, 1.5, 2.0, 0.0]


def test_a_process_that_slept_is_not_taken_for_a_loop_that_does_not_turn(clock: list[float]) -> None:
    async def main() -> list[float]:
        pulse = Pulse(asyncio.get_running_loop(), interval_s=0.5)
        seen = []
        for step_s in (0.5, 3600.0, 0.5, 0.5, 0.5):
            clock[0] += step_s
            seen.append(pulse.stalled()[0])
        return seen

    assert asyncio.run(main()) == [0.0, 0.0, 0.0, 1.0, 1.5]


def test_a_closed_loop_is_not_stalled(clock: list[float]) -> None:
    loop = asyncio.new_event_loop()
    pulse = Pulse(loop, interval_s=0.5)
    loop.close()
    seen = []
    for _ in range(4):
        clock[0] += 0.5
        seen.append(pulse.stalled())
    assert seen == [(0.0, "")] * 4


def test_a_stalled_loop_is_somewhere_in_its_own_thread(clock: list[float]) -> None:
    told: list[tuple[float, str]] = []
    pulses: list[Pulse] = []

    def ask() -> None:
        for _ in range(4):
            clock[0] += 0.5
            told.append(pulses[0].stalled())

    async def main() -> None:
        pulses.append(Pulse(asyncio.get_running_loop(), interval_s=0.5))
        other = threading.Thread(target=ask)
        other.start()
        other.join()  # the loop does not turn meanwhile

    asyncio.run(main())
    stalled_s, where = told[-1]
    assert stalled_s == 1.5
    file, line, name = re.fullmatch(r"(.*):(\d+) \((.*)\)", where).groups()  # type: ignore[union-attr]
    assert (file, name) == (__file__, "main")
    assert 3 <= int(line) - main.__code__.co_firstlineno <= 4  # where the thread is started, or waited for


def test_a_place_is_the_innermost_frame_that_is_ones_own() -> None:
    def own(call: Callable[[], str]) -> str:
        return call()

    def here() -> str:
        return place(sys._getframe())

    class Ask(json.JSONEncoder):
        def default(self, o: object) -> str:
            frame = sys._getframe().f_back  # the standard library's
            return place(frame)

    line = own.__code__.co_firstlineno + 1
    assert own(here) == f"{__file__}:{here.__code__.co_firstlineno + 1} (here)"
    assert json.loads(own(lambda: Ask().encode(object()))) == f"{__file__}:{_line_of_lambda(line)} (<lambda>)"


def _line_of_lambda(after: int) -> int:
    """The line of this file, below *after*, that has the lambda."""
    with open(__file__) as file:
        lines = file.read().splitlines()
    return next(number for number, text in enumerate(lines, start=1) if number > after and "own(lambda:" in text)


def test_a_stack_with_nothing_of_ones_own_gives_its_innermost_frame() -> None:
    frames = []
    thread = threading.Thread(target=threading.Event().wait, args=(5.0,), daemon=True)
    thread.start()
    while not frames or "wait" not in frames[-1]:
        frames.append(place(sys._current_frames().get(thread.ident or 0)))
    assert "threading.py" in frames[-1]
    assert place(None) == "an unknown place"
