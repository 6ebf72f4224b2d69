"""The measuring program: every node runs it in place of an algorithm, on any backend.

Measurements come in rounds: one sample of each kind for each pair of nodes, then rehearsed training
steps of all nodes with the real workload. So a disturbance of a second or two spoils one round,
never all samples of one link. In a round the nodes take turns, by rank, so that measurements do not
share links: one node measures with each of the others, which only answer. Symmetric quantities are
measured from the lower rank only.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from simcluster.compute import HOST, DeviceTransport, device_of
from simcluster.compute.matrix_product import MATRIX_PRODUCT, PRODUCT_FLOPS, matrix_product_s
from simcluster.experiment.node import preloads as preloads_of_experiment
from simcluster.experiment.node import prepare as prepare_experiment
from simcluster.experiment.read.experiment import Experiment
from simcluster.experiment.read.read import read_experiment
from simcluster.lab.calibrate import samples
from simcluster.lab.calibrate.rehearsal import MOST_STEPS, pattern_of, rehearse
from simcluster.lab.calibrate.samples import BOTH, BURST, FILL, ROUND, SENDS, STREAM, SWAP_MESSAGES, sample_name
from simcluster.payload import pack
from simcluster.runs.record import NodeRecord
from simcluster.runs.recorder import Recorder
from simcluster.topology.model.compute import CPU
from simcluster.transport import ANY, FREE, Cost, Transport
from simcluster.wings import open_door

SIZES = (0, 1024, 4 * 1024, 16 * 1024, 64 * 1024, 256 * 1024, 1024**2, 4 * 1024**2)
ROUND_S = 0.25
"""Limit on a round trip.

Sizes that would take longer are left out: small ones suffice on slow links.
"""

TRIES = 2
"""Number of round trips per size. The fastest counts, so that a single delay does not decide."""

ROUNDS = 20
"""Number of measured rounds: 19 undisturbed ones give a 90 % interval.

See simcluster.experiment.interval.
"""

WARM_UP = 2
"""Number of unrecorded rounds before the measured ones: caches fill, and TCP's window grows."""

SHORT_REPEATS = 3
"""Samples of an empty message per round."""

FILL_EVERY = 8
"""Send buffers are filled only in every eighth round, since their size changes little."""

END = "end"
READY = "ready"
DONE = "done"

PROBE_S = 0.01
"""Interval at which a node checks that its event loop wakes up on time."""

STAT, STEAL_COLUMN = Path("/proc/stat"), 8
"""The kernel's CPU times; column 8 of the first line is the time stolen by the host (proc_stat(5)).
"""


def prepare(config_json: str) -> None:
    """Read the workload before the clock starts."""
    prepare_experiment(json.dumps(json.loads(config_json)["experiment"]))


def preloads(config_json: str) -> list[str]:
    """Return the modules, besides this one, that `prepare` imports."""
    return preloads_of_experiment(json.dumps(json.loads(config_json)["experiment"]))


async def measure(node: Transport, recorder: Recorder, config_json: str) -> NodeRecord:
    """Take part in all measurements; return this node's samples.

    *config_json* is {"experiment": ..., "work": whether to measure work, "real": whether time is
    real, "shared": whether nodes share this machine}.
    """
    config = json.loads(config_json)
    meter = _Meter(node, recorder, config.get("real", False), config.get("shared", False))
    await meter.all_rounds(read_experiment(config["experiment"]) if config["work"] else None)
    return recorder.finish(None)


class _Meter:
    """A sampler on one node: it takes and records samples and disturbances.

    On a *shared* machine, it measures work on the CPU in CPU time: nodes compete for the cores.
    """

    def __init__(self, node: Transport, recorder: Recorder, real: bool, shared: bool) -> None:
        self.node = node
        self.recorder = recorder
        self._real = real
        self._shared = shared
        self._stolen: Callable[[], float] = stolen_s if real else lambda: 0.0
        self._late_s, self._stolen_s = 0.0, self._stolen()
        self._seen: Transport = node  # the transport that computes on the replica's device
        self._number = 0  # current round, negative while warming up
        self._largest: dict[int, int] = {}  # peer's rank -> bytes of the largest quick message

    async def all_rounds(self, experiment: Experiment | None) -> None:
        """Take part in all rounds; return when the last one is complete.

        If *experiment* is None, no work is measured.
        """
        answering = asyncio.create_task(self._answer())
        watching = asyncio.create_task(self._watch())
        await self._in_turns(self._find_largest)
        if experiment is not None:
            steps = MOST_STEPS * (WARM_UP + ROUNDS)
            size = self.node.size
            seed = experiment.seed
            device = self._device(experiment)
            replica = experiment.workload.replica(self.node.rank, size, seed, steps=steps, device=device)
            self._seen = self.node if device == HOST else DeviceTransport(self.node, device)
            batches = replica.batches()
        for self._number in range(-WARM_UP, ROUNDS):
            self._disturbances()
            await self._in_turns(self._links)
            if experiment is not None:
                await self._step(replica, batches)
            for what, seconds in zip((samples.LATE, samples.STOLEN), self._disturbances(), strict=True):
                self._note(what, "node", 0, seconds)
        if self.node.rank == self.node.size - 1:
            for rank in range(self.node.size):
                if rank != self.node.rank:
                    await self.node.send(rank, "ask", {"what": END})
            answering.cancel()
        watching.cancel()
        await asyncio.wait([answering, watching])
        if not answering.cancelled():
            answering.result()

    def _device(self, experiment: Experiment) -> torch.device:
        """Return the device that the node computes on; the simulator computes on the host."""
        return device_of(experiment.topology.nodes[self.node.name].compute) if self._real else HOST

    async def _watch(self) -> None:
        """Wake up every PROBE_S until cancelled; record the longest delay of a wake-up."""
        while True:
            due_s = self.recorder.now() + PROBE_S
            await asyncio.sleep(PROBE_S)
            self._late_s = max(self._late_s, self.recorder.now() - due_s)

    def _disturbances(self) -> tuple[float, float]:
        """Return (longest event-loop delay, stolen CPU time) since the last call, in seconds."""
        late_s, before_s = self._late_s, self._stolen_s
        self._late_s, self._stolen_s = 0.0, self._stolen()
        return max(0.0, late_s), self._stolen_s - before_s

    async def _in_turns(self, measure: Callable[[], Awaitable[None]]) -> None:
        """Run *measure* at each node in turn, by rank, once all nodes are idle; return when all have finished."""
        node = self.node
        if node.size == 1:
            return
        if node.rank > 0:
            await node.send(0, READY, None)
            await node.recv(node.rank - 1, "turn")
        else:
            for rank in range(1, node.size):
                await node.recv(rank, READY)
        await measure()
        if node.rank < node.size - 1:
            await node.send(node.rank + 1, "turn", None)
            await node.recv(node.size - 1, DONE)
        else:
            for rank in range(node.size - 1):
                await node.send(rank, DONE, None)

    async def _find_largest(self) -> None:
        """Find the largest message to each peer that takes little time, which also opens TCP's
        window."""
        for peer in range(self.node.rank + 1, self.node.size):
            longest_s = 0.0
            for size_bytes in SIZES:
                largest = self._largest.get(peer, 0)
                if size_bytes > largest > 0 and longest_s * size_bytes / largest > ROUND_S:
                    break
                body = torch.zeros(size_bytes, dtype=torch.uint8)
                longest_s = min([await self._round(peer, body) for _ in range(TRIES)])
                self._largest[peer] = size_bytes

    async def _links(self) -> None:
        """Take one round of this node's samples with every other node."""
        empty = torch.zeros(0, dtype=torch.uint8)
        for peer in range(self.node.size):
            if peer == self.node.rank:
                continue
            body = torch.zeros(self._largest[peer], dtype=torch.uint8)
            sends_s, burst_s = await self._stream(peer, empty, samples.BURST_MESSAGES)
            self._note(SENDS, peer, 0, sends_s)
            self._note(BURST, peer, 0, burst_s)
            if peer > self.node.rank:
                # TCP restarts slowly on an idle connection, and training leaves none idle for that
                # long: send a message first.
                await self._both(peer, body, 1)
                for _ in range(SHORT_REPEATS):
                    self._note(ROUND, peer, 0, await self._round(peer, empty))
                self._note(ROUND, peer, len(body), await self._round(peer, body))
                _, stream_s = await self._stream(peer, body, samples.STREAM_MESSAGES)
                self._note(STREAM, peer, len(body), stream_s)
                self._note(BOTH, peer, len(body), await self._both(peer, body, samples.STREAM_MESSAGES))
            if self._number % FILL_EVERY == 0 or self._number == -WARM_UP:
                # Fill the send buffer twice, and record the second time: the operating system
                # enlarges the buffer with use.
                await self._stream(peer, body, samples.FILL_MESSAGES)
                sends_s, _ = await self._stream(peer, body, samples.FILL_MESSAGES)
                self._note(FILL, peer, len(body), sends_s)

    async def _step(self, replica: Any, batches: Iterator[Any]) -> None:
        """Rehearse training steps, including waits such as the one for the next batch."""
        weights_bytes = sum(tensor.nbytes for tensor in replica.parameters)
        sizes = {peer: min(weights_bytes, SWAP_MESSAGES * most) for peer, most in self._largest.items()}

        async def gradient() -> Any:
            since_s = time.thread_time()
            batch = next(batches)
            cost = replica.gradient_cost(batch)
            return (await self._piece(replica, since_s, cost, replica.loss_and_gradients, batch))[1]

        async def apply(gradients: Any) -> None:
            await self._piece(replica, time.thread_time(), replica.apply_cost(), replica.apply, gradients)

        pattern = pattern_of(self._number)
        spent = time.thread_time if self._shared else float
        swap_s, step_s, handled_s = await rehearse(
            self._seen, self.recorder.now, pattern, sizes, gradient, apply, spent=spent
        )
        largest = max(sizes.values(), default=0)
        device = replica.parameters[0].device
        if device.type == CPU and self._real:
            product_s = await self.node.compute(matrix_product_s, cost=FREE)
            self._note(samples.PRODUCT, MATRIX_PRODUCT, PRODUCT_FLOPS, product_s)
            for kind, flops, format_s in await self.node.compute(open_door("format_products"), cost=FREE):
                self._note(samples.PRODUCT, kind, flops, format_s)
        if device.type != CPU:
            self._note(samples.ON, device.type, device.index or 0, 1.0)
        self._note(samples.SWAP, pattern, largest, swap_s)
        self._note(samples.STEP, pattern, largest, step_s)
        if self._shared:
            self._note(samples.HANDLED, pattern, largest, handled_s)

    async def _round(self, peer: int, body: Tensor) -> float:
        """Return the seconds of a round trip of *body* to *peer*."""
        start_s = self.recorder.now()
        await self.node.send(peer, "ask", pack(body, what=ROUND))
        await self.node.recv(peer, "answer")
        return self.recorder.now() - start_s

    async def _stream(self, peer: int, body: Tensor, messages: int) -> tuple[float, float]:
        """Send *messages* copies of *body* to *peer*.

        Return the seconds of all sends, and the seconds until the answer.
        """
        start_s = self.recorder.now()
        for left in reversed(range(messages)):
            await self.node.send(peer, "ask", pack(body, what=STREAM, left=left))
        sent_s = self.recorder.now()
        await self.node.recv(peer, "answer")
        return sent_s - start_s, self.recorder.now() - start_s

    async def _both(self, peer: int, body: Tensor, messages: int) -> float:
        """Ask *peer* to exchange *messages* copies of *body* in both directions at once.

        Return the seconds from the first to the last arrival.
        """
        await self.node.send(peer, "ask", pack(what=BOTH, size_bytes=len(body), messages=messages))
        took_s = await self._cross(peer, body, messages)
        await self.node.recv(peer, "answer")
        return took_s

    async def _cross(self, peer: int, body: Tensor, messages: int) -> float:
        """Send *messages* copies of *body* to *peer* while receiving as many.

        Return the seconds from the first to the last arrival.
        """
        sending = [asyncio.create_task(self.node.send(peer, BOTH, body)) for _ in range(messages)]
        try:
            await self.node.recv(peer, BOTH)
            first_s = self.recorder.now()
            for _ in range(messages - 1):
                await self.node.recv(peer, BOTH)
            took_s = self.recorder.now() - first_s
            await asyncio.gather(*sending)
            return took_s
        finally:
            for task in sending:
                task.cancel()
            await asyncio.gather(*sending, return_exceptions=True)

    async def _answer(self) -> None:
        """Answer the other nodes' measurements until the last rank ends the program."""
        node = self.node
        while True:
            ask = await node.recv(ANY, "ask")
            match ask["what"]:
                case "round":
                    self._largest[ask.source] = max(self._largest.get(ask.source, 0), len(ask.tensor))
                    await node.send(ask.source, "answer", ask.tensor)
                case "stream" if ask["left"] == 0:
                    await node.send(ask.source, "answer", None)
                case "both":
                    body = torch.zeros(ask["size_bytes"], dtype=torch.uint8)
                    took_s = await self._cross(ask.source, body, ask["messages"])
                    if ask["messages"] > 1:
                        self._note(BOTH, ask.source, len(body), took_s)
                    await node.send(ask.source, "answer", None)
                case "end":
                    return

    async def _piece(self, replica: Any, since_s: float, cost: Cost, work: Callable[..., Any], *args: Any) -> Any:
        """Run *work* and record its time.

        On a shared CPU, the time includes the event loop's CPU time since *since_s*.
        """
        start_s = self.recorder.now()
        if self._shared and replica.parameters[0].device.type == CPU:
            result, work_s = await self.node.compute(_timed, work, *args, cost=cost)
            # Add the event loop's share: it draws the batch, hands the work to a thread, and takes
            # the result.
            work_s += time.thread_time() - since_s
        else:
            result = await self._seen.compute(work, *args, cost=cost)
            work_s = self.recorder.now() - start_s
        self._note(samples.WORK, cost.kind, cost.flops, work_s)
        return result

    def _note(self, what: str, where: str | int, number: float, seconds: float) -> None:
        """Record a sample, unless this is a warm-up round."""
        if self._number >= 0:
            self.recorder.metric_at(self.recorder.now(), self._number, sample_name(what, where, number), seconds)


def _timed(work: Callable[..., Any], *args: Any) -> tuple[Any, float]:
    """Return the result of *work*, and the CPU seconds that this thread spent on it."""
    start_s = time.thread_time()
    result = work(*args)
    return result, time.thread_time() - start_s


def stolen_s() -> float:
    """Return the CPU seconds stolen from this machine since it started, over all cores; 0 if unknown."""
    if sys.platform == "linux":
        with suppress(OSError, ValueError, IndexError), STAT.open(encoding="ascii") as file:
            return int(file.readline().split()[STEAL_COLUMN]) / os.sysconf("SC_CLK_TCK")
    return 0.0
