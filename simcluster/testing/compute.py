"""Checks of compute: results, order, messages that arrive meanwhile, and cancellation."""

from __future__ import annotations

import asyncio

import torch

from simcluster.testing.harness import RunBodies, error_of, run
from simcluster.transport import Cost, Transport


def multiply(size: int, times: int) -> float:
    """Multiply *size* x *size* matrices *times* times, to keep the device busy, and return
    *size*.
    """
    product = torch.eye(size)
    for _ in range(times):
        product = product @ product
    return float(product.sum())


def compute_returns_and_raises_what_the_work_does(run_bodies: RunBodies) -> None:
    async def body(node: Transport) -> None:
        assert await node.compute(lambda a, b: a + b, 2, b=3, cost=Cost(10.0)) == 5
        failing = node.compute(lambda: 1 // 0, cost=Cost(10.0))
        await error_of(ZeroDivisionError, failing, "compute swallowed an exception")

    run(run_bodies, body)


def work_is_a_plain_function_and_its_cost_a_cost(run_bodies: RunBodies) -> None:
    async def asynchronous() -> None:
        raise AssertionError("a device ran an async function")

    async def body(node: Transport) -> None:
        for work, cost in ((int, 1e6), (None, Cost(1.0)), (asynchronous, Cost(1.0))):
            computing = node.compute(work, cost=cost)  # type: ignore[arg-type]
            await error_of(TypeError, computing, f"compute took {work} at a cost of {cost!r}")
        assert await node.compute(lambda: 1, cost=Cost(1.0)) == 1, "the device must still work"

    run(run_bodies, body)


def messages_are_answered_while_work_runs(run_bodies: RunBodies) -> None:
    async def busy(node: Transport) -> None:
        async def answer() -> None:
            await node.recv(1, "question")
            await node.send(1, "answer", None)

        answering = asyncio.create_task(answer())
        computing = asyncio.create_task(node.compute(multiply, 300, 60, cost=Cost(1e12)))
        await node.send(1, "busy", None)
        await answering
        await node.send(1, "done", int(computing.done()))
        assert await computing == 300.0

    async def asker(node: Transport) -> None:
        await node.recv(0, "busy")
        await node.send(0, "question", None)
        await node.recv(0, "answer")
        await node.recv(0, "done")

    run(run_bodies, busy, asker)


def a_device_does_one_piece_at_a_time_in_order(run_bodies: RunBodies) -> None:
    async def body(node: Transport) -> None:
        order: list[int] = []
        async with asyncio.TaskGroup() as group:
            for number in range(5):
                group.create_task(node.compute(order.append, number, cost=Cost(1e6)))
        assert order == [0, 1, 2, 3, 4], order

    run(run_bodies, body)


def work_that_waits_can_be_cancelled(run_bodies: RunBodies) -> None:
    async def body(node: Transport) -> None:
        ran: list[str] = []

        def slow() -> None:
            multiply(200, 50)
            ran.append("first")

        first = asyncio.create_task(node.compute(slow, cost=Cost(1e9)))
        second = asyncio.create_task(node.compute(ran.append, "second", cost=Cost(1e9)))
        await asyncio.sleep(0)
        second.cancel()
        await first
        await asyncio.gather(second, return_exceptions=True)
        assert second.cancelled()
        assert await node.compute(lambda: 42, cost=Cost(1.0)) == 42
        assert ran == ["first"], f"cancelled work ran: {ran}"

    run(run_bodies, body)


def work_that_runs_can_be_cancelled(run_bodies: RunBodies) -> None:
    async def body(node: Transport) -> None:
        order: list[str] = []

        def slow() -> None:
            multiply(200, 50)
            order.append("ran to its end")

        running = asyncio.create_task(node.compute(slow, cost=Cost(1e9)))
        for _ in range(5):  # no other work is pending, so the device starts within a few turns
            await asyncio.sleep(0)
        running.cancel()
        outcome = (await asyncio.gather(running, return_exceptions=True))[0]
        assert isinstance(outcome, asyncio.CancelledError), f"cancelled work gave {outcome!r}"
        assert await node.compute(lambda: 42, cost=Cost(1.0)) == 42, "the device must be free again"
        assert order in ([], ["ran to its end"]), f"the work ran {len(order)} times"

    run(run_bodies, body)
