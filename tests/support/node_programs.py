"""Small programs for node processes, found by name: the tests of the sockets backend start them."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
import os
import sys
import threading
import time
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import torch

from simcluster.errors import Left, PeerLost
from simcluster.paths.spool import Spool
from simcluster.payload import pack
from simcluster.runs.record import NodeRecord
from simcluster.runs.recorder import Recorder
from simcluster.transport import ANY, Cost


async def ring(node: Any, recorder: Recorder, config: str) -> NodeRecord:
    """Passes a sum around once and tells it to everybody; every node notes it."""
    await node.compute(lambda: None, cost=Cost(1.0))
    right, left = (node.rank + 1) % node.size, (node.rank - 1) % node.size
    left_behind = asyncio.create_task(asyncio.sleep(3600))  # must not keep anybody from ending
    total = torch.tensor([float(node.rank)])
    if node.size > 1:
        for _ in range(node.size - 1):
            async with asyncio.TaskGroup() as group:
                group.create_task(node.send(right, "sum", total))
                got = group.create_task(node.recv(left, "sum"))
            total = got.result().tensor + node.rank
    node.record(step=1, total=float(total))
    assert not left_behind.done()
    return recorder.finish(f"{json.loads(config)['mark']}-{float(total)}")


def say_where(node: Any, config: str) -> Path:
    """Writes this process's id where the test can find it; returns that folder."""
    folder = Path(json.loads(config)["folder"])
    (folder / f"{node.name}.pid").write_text(str(os.getpid()))
    return folder


async def forever(node: Any, recorder: Recorder, config: str) -> NodeRecord:
    """Everybody sends to everybody without end."""
    say_where(node, config)
    step = 0
    while True:
        step += 1
        async with asyncio.TaskGroup() as group:
            for peer in range(node.size):
                if peer != node.rank:
                    group.create_task(node.send(peer, "x", torch.zeros(1000)))
                    group.create_task(node.recv(peer, "x"))
        node.record(step=step, value=1.0)
        await asyncio.sleep(0.002)


async def busy_forever(node: Any, recorder: Recorder, config: str) -> NodeRecord:
    """Never lets go of its loop."""
    say_where(node, config)
    while True:
        time.sleep(0.05)  # noqa: ASYNC251 - that is the point


async def tolerant(node: Any, recorder: Recorder, config: str) -> NodeRecord:
    """Rank 0 collects from all that live; rank 1 sends 40 times, the others until they are killed."""
    if node.rank:
        for step in range(40) if node.rank == 1 else count():
            await node.send(0, "x", step)
            node.record(step=step, alive=1.0)
            await asyncio.sleep(0.02)
        return recorder.finish(None)
    while node.peers:
        try:
            await node.recv(ANY, "x")
        except PeerLost as lost:
            if lost.reason != "ended its algorithm":
                node.record(step=0, lost=lost.rank)
    return recorder.finish("survived")


async def waits_for_nothing(node: Any, recorder: Recorder, config: str) -> NodeRecord:
    """A deadlock: everybody waits for a message that nobody sends."""
    await node.recv((node.rank + 1) % node.size, "never")
    raise AssertionError("unreachable")


async def reads_another_tag(node: Any, recorder: Recorder, config: str) -> NodeRecord:
    """A deadlock: rank 0 sends two messages with one tag, and rank 1 receives with another."""
    if node.rank == 0:
        await node.send(1, "grads", 1)
        await node.send(1, "grads", 2)
    await node.recv(1 - node.rank, "grad")
    raise AssertionError("unreachable")


def line_of(program: Any, text: str) -> str:
    """Return "file:line (function): `line`" for the line of *program* that contains *text*, as reports name it."""
    lines, first = inspect.getsourcelines(program)
    ((number, line),) = [(number, line.strip()) for number, line in enumerate(lines, first) if text in line]
    return f"{inspect.getsourcefile(program)}:{number} ({program.__name__}): `{line}`"


async def fails(node: Any, recorder: Recorder, config: str) -> NodeRecord:
    """Rank 1 has a bug; the others wait for it."""
    node.record(step=1, before=float(node.rank))
    if node.rank == 1:
        await asyncio.sleep(0.05)
        raise LookupError("the bug of rank 1")
    await node.recv(1, "never")
    raise AssertionError("unreachable")


async def goes_on_when_told(node: Any, recorder: Recorder, config: str) -> NodeRecord:
    """Waits until the test makes a file called `go`, then exchanges a message with the other node."""
    folder = say_where(node, config)
    while not os.path.exists(folder / "go"):  # noqa: ASYNC240 - the test is another process
        await asyncio.sleep(0.02)
    other = 1 - node.rank
    async with asyncio.TaskGroup() as group:
        group.create_task(node.send(other, "after", pack(torch.ones(1000))))
        group.create_task(node.recv(other, "after"))
    return recorder.finish("whole")


async def notes_and_goes_on_when_told(node: Any, recorder: Recorder, config: str) -> NodeRecord:
    """Notes a step before it waits as `goes_on_when_told` does."""
    node.record(step=1, value=1.0)
    return await goes_on_when_told(node, recorder, config)


async def heavy(node: Any, recorder: Recorder, config: str) -> NodeRecord:
    """Rank 0 has weights of as many bytes as *config* says; they repeat nowhere near where pieces end."""
    content = (bytes(range(251)) * (int(config) // 251 + 1))[: int(config)]
    await asyncio.sleep(0)
    record = recorder.finish(hashlib.sha256(content).hexdigest())
    record.weights = Spool(content) if node.rank == 0 else None
    return record


async def spins(node: Any, recorder: Recorder, config: str) -> NodeRecord:
    """Rank 1 never lets go of its loop once it has noted something; the others wait for it."""
    say_where(node, config)
    node.record(step=1, before=float(node.rank))
    await asyncio.sleep(0.3)  # past a heartbeat, so that what was noted is known
    while node.rank == 1:
        pass
    await node.recv(1, "never")
    raise AssertionError("unreachable")


async def polls(node: Any, recorder: Recorder, config: str) -> NodeRecord:
    """Waits for what never becomes true, without the transport, and swallows whatever would end it."""
    say_where(node, config)
    while True:
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            continue


LET_GO = threading.Event()
"""Ends the work of `computes_for_ever` in this process, so that its thread does not outlive a test."""


async def computes_for_ever(node: Any, recorder: Recorder, config: str) -> NodeRecord:
    """A piece of work without an end."""
    say_where(node, config)

    def work() -> None:
        while not LET_GO.wait(0.05):
            pass

    await node.compute(work, cost=Cost(1.0))
    raise AssertionError("unreachable")


class Odd(BaseException):
    """Not an Exception."""


async def raises_odd(node: Any, recorder: Recorder, config: str) -> NodeRecord:
    """Rank 1 raises what is no Exception."""
    await asyncio.sleep(0.05)
    if node.rank == 1:
        raise Odd("of rank 1")
    await node.recv(1, "never")
    raise AssertionError("unreachable")


async def exits(node: Any, recorder: Recorder, config: str) -> NodeRecord:
    """A task of rank 1 calls sys.exit."""

    async def child() -> None:
        await asyncio.sleep(0.05)
        sys.exit("the task of rank 1")

    async with asyncio.TaskGroup() as group:
        if node.rank == 1:
            group.create_task(child())
        group.create_task(node.recv(1 - node.rank, "never"))
    raise AssertionError("unreachable")


async def waits_for_the_dead(node: Any, recorder: Recorder, config: str) -> NodeRecord:
    """The test kills rank 2; ranks 0 and 1 do not mind, and then wait for each other in vain."""
    say_where(node, config)
    while node.rank < 2 and 2 in node.peers:
        await asyncio.sleep(0.02)
    await node.recv(1 - node.rank if node.rank < 2 else 0, "never")
    raise AssertionError("unreachable")


async def prints(node: Any, recorder: Recorder, config: str) -> NodeRecord:
    """Says hello."""
    print(f"hello from {node.rank}")
    await asyncio.sleep(0)
    return recorder.finish(None)


async def bears_losses(node: Any, recorder: Recorder, config: str) -> NodeRecord:
    """The others send to rank 0 without end, until the test harms them; rank 0 goes on until nobody is left."""
    say_where(node, config)
    step = 0
    while node.peers:
        step += 1
        node.record(step=step, alive=1.0)
        try:
            await (node.recv(ANY, "x") if node.rank == 0 else node.send(0, "x", torch.zeros(1000)))
        except PeerLost:
            continue
    return recorder.finish("survived")


async def counts_lives(node: Any, recorder: Recorder, config: str) -> NodeRecord:
    """The others tell rank 0 which of their lives they are in, until it has seen all that *config* wants."""
    wanted = {tuple(pair) for pair in json.loads(config)["wanted"]}
    if node.rank:
        step = 0
        while True:
            step += 1
            await node.send(0, "step", recorder.incarnation)
            recorder.metrics(step, {"incarnation": float(recorder.incarnation)})
            if (await node.recv(0, "answer"))["value"]:
                return recorder.finish(f"life {recorder.incarnation}")
            say_where(node, config)
            if recorder.told_to_leave:
                recorder.finish(f"left in life {recorder.incarnation}")
                raise Left(step)
    seen: set[tuple[int, str]] = set()
    folder = say_where(node, config)
    while not wanted <= seen:
        try:
            message = await node.recv(ANY, "step")
        except PeerLost as lost:
            if lost.rank in node.peers:  # back already
                continue
            seen.add((lost.rank, "left" if lost.reason.startswith("left at step") else "lost"))
            node.record(step=0, lost=lost.rank)
            (folder / f"{lost.rank}.lost").touch()
            continue
        seen.add((message.source, f"life {message['value']}"))
        with suppress(PeerLost):
            await node.send(message.source, "answer", wanted <= seen)
    for rank in node.peers:
        with suppress(PeerLost):
            await node.recv(rank, "step")
            await node.send(rank, "answer", True)
    return recorder.finish(json.dumps(sorted(seen)))
