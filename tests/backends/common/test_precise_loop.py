"""Loops with an exact clock: timers run once, never early, and not after they were cancelled."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest
from simcluster_backends.common import precise_loop
from simcluster_backends.common.event_loop import run_to_its_end
from simcluster_backends.sockets.node.order import loop_factory

from simcluster.runs.event_notes import NOTES

LOOPS = [(uvloop, counts) for uvloop in (False, True) for counts in (False, True)]
WORD = ContextVar("word", default="")


@pytest.fixture(params=LOOPS, ids=lambda given: f"{['asyncio', 'uvloop'][given[0]]}{given[1] * ', counts'}")
def factory(request: pytest.FixtureRequest) -> Callable[[], asyncio.AbstractEventLoop]:
    uvloop, counts = request.param
    if uvloop:
        pytest.importorskip("uvloop")
    return loop_factory(uvloop, counts=counts)


def test_timers_run_once_and_never_early(factory: Any) -> None:
    async def main() -> list[float]:
        loop, early_s = asyncio.get_running_loop(), list[float]()
        done, waits_s = loop.create_future(), [0.0031, 0.0001, 0.0, 0.0022, 0.0009, -1.0, 0.0605]
        began_s = loop.time()

        def due(wait_s: float) -> None:
            early_s.append(began_s + wait_s - loop.time())
            order.append(wait_s)
            if len(order) == len(waits_s):
                done.set_result(None)

        order = list[float]()
        for wait_s in waits_s:
            loop.call_at(began_s + wait_s, due, wait_s)
        await done
        assert sorted(order) == sorted(waits_s)
        return early_s

    assert max(run_to_its_end(main(), factory)) <= 0


def test_a_cancelled_timer_does_not_run_whatever_part_of_it_is_set(
    factory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_s = time.monotonic()
    monkeypatch.setattr(precise_loop, "monotonic", lambda: at_s)

    async def main() -> list[float]:
        nonlocal at_s
        loop, ran = asyncio.get_running_loop(), list[float]()
        timers = [loop.call_later(wait_s, ran.append, wait_s) for wait_s in (0.0005, 0.004, 0.06, 1000.0)]
        for _ in range(3):
            await asyncio.sleep(0)  # into the last part of the first one
        for timer in timers:
            timer.cancel()
            timer.cancel()
            assert timer.cancelled()
        at_s += 2000.0
        loop.call_later(0.0, ran.append, 0.0)
        await asyncio.to_thread(time.sleep, 0.08)  # the machine's time, for the other parts
        return ran

    assert run_to_its_end(main(), factory) == [0.0]


def test_a_timer_runs_in_its_own_context_and_its_error_is_reported(factory: Any) -> None:
    async def main() -> tuple[str, str]:
        loop, told, heard = asyncio.get_running_loop(), list[str](), loop_future()
        loop.set_exception_handler(lambda _, about: heard.set_result(str(about["exception"])))
        WORD.set("inner")
        loop.call_later(0.0003, lambda: told.append(WORD.get()))
        WORD.set("outer")

        def fails() -> None:
            raise ValueError("in a timer")

        loop.call_later(0.0015, fails)
        return await heard, *told

    def loop_future() -> Any:
        return asyncio.get_running_loop().create_future()

    assert NOTES.get(None) is None
    assert run_to_its_end(main(), factory) == ("in a timer", "inner")
