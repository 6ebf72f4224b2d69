"""The simulated event loop: asyncio's own constructs in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from simcluster_backends.sim.loop.clock import Clock
from simcluster_backends.sim.loop.event_loop import LoopDrained, SimLoop

from simcluster.errors import UsageError


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    loop = SimLoop()
    try:
        return loop.run_until_complete(coroutine)
    finally:
        loop.close()


def now() -> float:
    return asyncio.get_running_loop().time()


def test_a_sleep_of_a_year_is_one_event() -> None:
    async def body() -> float:
        await asyncio.sleep(365 * 86400.0)
        return now()

    assert run(body()) == 365 * 86400.0


def test_times_are_exact_and_equal_times_keep_their_order() -> None:
    async def body() -> list[tuple[float, str]]:
        log: list[tuple[float, str]] = []

        async def note(delay_s: float, name: str) -> None:
            await asyncio.sleep(delay_s)
            log.append((now(), name))

        async with asyncio.TaskGroup() as group:
            for delay_s, name in [(0.3, "a"), (0.1, "b"), (0.3, "c"), (0.0, "d")]:
                group.create_task(note(delay_s, name))
        return log

    assert run(body()) == [(0.0, "d"), (0.1, "b"), (0.3, "a"), (0.3, "c")]


def test_a_timer_is_exact_where_now_plus_its_difference_is_not() -> None:
    # 0.2 + (0.9 - 0.2) is 0.9 but for one unit in the last place.
    clock = Clock(0.2)
    fired: list[float] = []
    clock.alarm_at(0.9, lambda _: fired.append(clock.now))
    clock.advance()
    assert 0.2 + (0.9 - 0.2) != 0.9
    assert fired == [0.9]


def test_a_delay_below_the_clocks_resolution_ends() -> None:
    async def body() -> float:
        await asyncio.sleep(1e15)
        for _ in range(3):
            await asyncio.sleep(1e-9)  # now + delay == now
        return now()

    assert run(body()) == 1e15


def test_timeout_cancels_at_its_time() -> None:
    async def body() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2.5):
                await asyncio.Event().wait()
        return now()

    assert run(body()) == 2.5


def test_a_timeout_called_off_does_not_move_the_clock() -> None:
    async def body() -> float:
        async with asyncio.timeout(1000):
            await asyncio.sleep(1)
        never = asyncio.get_running_loop().create_future()
        await never
        return 0.0

    loop = SimLoop()
    with pytest.raises(LoopDrained):
        loop.run_until_complete(body())
    assert loop.time() == 1.0


def test_nothing_left_to_happen_is_told() -> None:
    with pytest.raises(LoopDrained):
        run(asyncio.Event().wait())


def test_queues_events_and_wait_for_work() -> None:
    async def body() -> list[int]:
        queue: asyncio.Queue[int] = asyncio.Queue(maxsize=1)

        async def put() -> None:
            for number in range(3):
                await queue.put(number)
                await asyncio.sleep(1)

        task = asyncio.create_task(put())
        got = [await asyncio.wait_for(queue.get(), 10) for _ in range(3)]
        await task
        assert now() == 3.0
        return got

    assert run(body()) == [0, 1, 2]


def test_sets_of_tasks_iterate_by_their_number() -> None:
    async def body() -> list[int]:
        async def value(number: int) -> int:
            await asyncio.sleep(1)
            return number

        tasks = [asyncio.create_task(value(number)) for number in range(30)]
        done, _ = await asyncio.wait(tasks)
        return [task.result() for task in done]

    assert run(body()) == list(range(30))


@pytest.mark.parametrize(
    ("attempt", "instead"),
    [
        (lambda: asyncio.to_thread(print), "node.compute"),
        (lambda: asyncio.open_connection("127.0.0.1", 1), "node.send"),
        (lambda: asyncio.create_subprocess_exec("true"), "node.compute"),
    ],
)
def test_what_leaves_the_simulated_world_is_refused_with_the_right_spelling(attempt: Any, instead: str) -> None:
    async def body() -> None:
        await attempt()

    with pytest.raises(UsageError, match=instead):
        run(body())


def test_an_outer_running_loop_gets_its_place_back() -> None:
    async def outer() -> float:
        inner: float = run(asyncio.sleep(5, result=7.0))
        await asyncio.sleep(0)
        return inner

    assert asyncio.run(outer()) == 7.0


def test_a_sleep_until_no_time_is_refused_and_the_clock_stays_sound() -> None:
    loop = SimLoop()  # type: ignore[abstract]
    with pytest.raises(ValueError, match="not a number"):
        loop.call_later(float("nan"), print)
    assert loop.time() == 0.0
    loop.close()
