"""The measuring program: every node runs it in place of an algorithm, next to a gloo rank.

Each operation is timed on this transport and then on gloo, so that both meet the same load of the
machine; while one of them runs, the other is idle. An operation starts when all ranks are ready.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

import torch
from torch import Tensor

from simcluster.collectives import ring_all_reduce
from simcluster.collectives.ring import ring_barrier
from simcluster.errors import RunError
from simcluster.payload import lend
from simcluster.process.buffers import BUFFERS
from simcluster.runs.record import NodeRecord
from simcluster.runs.recorder import Recorder
from simcluster.transport import FREE, Transport

PROGRAM = "simcluster.lab.bench.transport.gloo"
END_S = 5.0
"""Time for the gloo process to exit before it is killed."""

OURS, GLOO = "ours", "gloo"
CPU = "_cpu"
"""Suffix of metrics in CPU time, which other load affects less than elapsed time."""
SERVER = 0
WARM_UP = 2
"""Number of unrecorded repetitions, in which caches fill and TCP's window grows."""


class Companion:
    """A gloo rank next to a node: a process that reads and writes lines of JSON.

    The process ends when its input ends: at the end of the `with` block, or with its parent.
    """

    def __init__(self, rank: int, size: int) -> None:
        command = [sys.executable, "-m", PROGRAM, str(rank), str(size)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)  # noqa: S603 - two numbers

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send *request* and block until the answer. Raise RunError if the process has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            code = self._process.wait(END_S)
            raise RunError(f"a process with gloo ended with exit code {code} when asked {request}; it says why above")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __enter__(self) -> Companion:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if kind is not None:
            self._process.kill()
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


async def measure(node: Transport, recorder: Recorder, config_json: str) -> NodeRecord:
    """Time every operation at every size; return the samples.

    *config_json* is {"sizes": [bytes of the vector, ...], "repeats": repetitions of each}.
    """
    config = json.loads(config_json)
    with Companion(node.rank, node.size) as gloo:
        await _introduce(node, gloo)
        for size_bytes in config["sizes"]:
            mine = torch.full((size_bytes // 4,), node.rank + 1.0)
            for repeat in range(-WARM_UP, config["repeats"]):
                for name, operation in OPERATIONS.items():
                    ours = await _timed(node, recorder, operation, mine)
                    answer = await node.compute(gloo.ask, do=name, count=len(mine), cost=FREE)
                    _check(answer["right"], f"{name} of gloo", size_bytes)
                    theirs = answer["took_s"], answer["cpu_s"]
                    for whose, (took_s, cpu_s) in ((OURS, ours), (GLOO, theirs)) if repeat >= 0 else ():
                        for of, value_s in ((whose, took_s), (whose + CPU, cpu_s)):
                            recorder.metric_at(recorder.now(), repeat, f"{name}:{of}:{size_bytes}", value_s)
    return recorder.finish(None)


async def _introduce(node: Transport, gloo: Companion) -> None:
    """Connect the gloo ranks: rank 0 opens a port, and the others join.

    Rank 0 does not wait for the others here. Its next answer comes once all have joined.
    """
    port = None
    if node.rank == 0:
        port = (await node.compute(gloo.ask, port=None, cost=FREE))["port"]
        for rank in range(1, node.size):
            await node.send(rank, "port", port)
    else:
        port = (await node.recv(0, "port"))["value"]
        await node.compute(gloo.ask, port=port, cost=FREE)


async def _timed(
    node: Transport, recorder: Recorder, operation: Callable[[Transport, Tensor], Awaitable[Tensor]], mine: Tensor
) -> tuple[float, float]:
    """Return (elapsed time, CPU time of all threads) of *operation*, in seconds."""
    await ring_barrier(node, "ready")
    began_s, cpu_began_s = recorder.now(), time.process_time()
    total = await operation(node, mine)
    took_s, cpu_s = recorder.now() - began_s, time.process_time() - cpu_began_s
    _check(bool((total == node.size * (node.size + 1) / 2).all()), "a sum", mine.nbytes)
    return took_s, cpu_s


def _check(is_right: bool, what: str, size_bytes: int) -> None:
    if not is_right:
        raise RunError(f"{what} of {size_bytes} bytes has a wrong result")


async def _push_pull(node: Transport, mine: Tensor) -> Tensor:
    """Send every worker's vector to the server; send the sum, in rank order, to every worker."""
    if node.rank != SERVER:
        await node.send(SERVER, "push", lend(mine))
        return (await node.recv(SERVER, "pull")).tensor
    workers = [rank for rank in range(node.size) if rank != SERVER]
    total = BUFFERS.empty(mine.shape, mine.dtype).copy_(mine)
    for rank in workers:
        total.add_((await node.recv(rank, "push")).tensor)
    async with asyncio.TaskGroup() as pulls:
        for rank in workers[1:]:
            pulls.create_task(node.send(rank, "pull", lend(total)))
        await node.send(workers[0], "pull", lend(total))
    return total


OPERATIONS: dict[str, Callable[[Transport, Tensor], Awaitable[Tensor]]] = {
    "all_reduce": partial(ring_all_reduce, tag="bench"),
    "push_pull": _push_pull,
}
"""Name of an operation -> its function; the gloo program uses the same names."""
