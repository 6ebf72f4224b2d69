"""Checks of waiting: the clock, yielding to other tasks, cancellation and backpressure."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import torch

from simcluster.payload import pack
from simcluster.testing.harness import A_MOMENT_S, RunBodies, error_of, run
from simcluster.transport import ANY, FREE, Transport

SHORT_S = 0.0002
MANY = 2000


def every_verb_yields(run_bodies: RunBodies) -> None:
    async def body(node: Transport) -> None:
        other = 1 - node.rank
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        await node.send(other, "t", None)
        await node.send(other, "there", None)
        await node.recv(other, "there")
        counter = asyncio.create_task(count())
        await asyncio.sleep(0)
        verbs: dict[str, Callable[[], Awaitable[Any]]] = {
            "recv of a message that is here": lambda: node.recv(other, "t"),
            "send": lambda: node.send(other, "u", None),
            "compute that is free": lambda: node.compute(lambda: None, cost=FREE),
        }
        for name, verb in verbs.items():
            before = turns
            await verb()
            assert turns > before, f"{name} did not yield"
        counter.cancel()
        await node.recv(other, "u")

    run(run_bodies, body, body)


def the_clock_has_microseconds_and_so_has_a_wait(run_bodies: RunBodies) -> None:
    """Check that no wait ends early, and that at least one of MANY waits does not end late.

    A busy machine delays some waits, but not all.
    """

    async def body(node: Transport) -> None:
        clock = asyncio.get_running_loop().time
        for _ in range(MANY):
            began_s = clock()
            await asyncio.sleep(SHORT_S)
            took_s = clock() - began_s
            assert took_s > 0.999 * SHORT_S, f"a wait of {SHORT_S:g} s took {took_s:g} s by the loop's clock"
            if took_s < 4 * SHORT_S:
                return
        raise AssertionError(f"each of {MANY} waits of {SHORT_S:g} s took at least {4 * SHORT_S:g} s")

    run(run_bodies, body, body)


def a_cancelled_recv_loses_no_message(run_bodies: RunBodies) -> None:
    async def sender(node: Transport) -> None:
        await node.recv(1, "timed out")
        for number in range(20):
            await node.send(1, "t", number)

    async def receiver(node: Transport) -> None:
        await error_of(TimeoutError, asyncio.wait_for(node.recv(0, "t"), A_MOMENT_S), "nothing was sent yet")
        await node.send(0, "timed out", None)
        got: list[int] = []
        turns = 0
        while len(got) < 20:  # cancel each receive after a different number of turns
            task = asyncio.create_task(node.recv(0, "t"))
            for _ in range(turns % 4):
                await asyncio.sleep(0)
            turns += 1
            if turns % 5 == 0:
                await asyncio.sleep(A_MOMENT_S / 10)
            else:
                task.cancel()
            try:
                got.append((await task)["value"])
            except asyncio.CancelledError:
                continue
        assert got == list(range(20)), f"lost or reordered: {got}"

    run(run_bodies, sender, receiver)


def a_cancelled_send_delivers_all_or_nothing(run_bodies: RunBodies) -> None:
    async def sender(node: Transport) -> None:
        for turns in range(12):
            task = asyncio.create_task(node.send(1, "t", pack(torch.full((300_000,), float(turns)), turn=turns)))
            for _ in range(turns % 6):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await node.send(1, "t", pack(turn=-1))

    async def receiver(node: Transport) -> None:
        seen = []
        while (message := await node.recv(0, ANY))["turn"] >= 0:
            turn = message["turn"]
            assert torch.equal(message.tensor, torch.full((300_000,), float(turn))), "half a message"
            seen.append(turn)
        assert seen == sorted(set(seen)), f"repeated or reordered: {seen}"

    run(run_bodies, sender, receiver)


def a_receiver_that_does_not_receive_pushes_back(run_bodies: RunBodies) -> None:
    # 64 messages of 4 MB are 256 MB: more than the 64 MiB inbox and all socket buffers together.
    async def sender(node: Transport) -> None:
        chunk = torch.zeros(1_000_000)
        sent = 0

        async def push() -> None:
            nonlocal sent
            for _ in range(64):
                await node.send(1, "t", chunk)
                sent += 1

        pushing = asyncio.create_task(push())
        before = -1
        while sent != before:  # wait until no further message leaves
            before = sent
            await asyncio.sleep(6 * A_MOMENT_S)
        assert not pushing.done(), "256 MB left although no node received any of it"
        await node.send(2, "stalled", None)
        await pushing

    async def receiver(node: Transport) -> None:
        await node.recv(2, "stalled")
        for _ in range(64):
            await node.recv(0, "t")

    async def witness(node: Transport) -> None:
        await node.recv(0, "stalled")
        await node.send(1, "stalled", None)

    run(run_bodies, sender, receiver, witness)
