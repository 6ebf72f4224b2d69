"""Both ends of a barrier: a server that waits at every step for gradients of its weights, and its workers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from functools import partial
from typing import Any

from torch import Tensor

from simcluster.algorithms.parameter_server.server import SERVER, Push, endless
from simcluster.algorithms.parameter_server.star import arrivals, ask, sends
from simcluster.algorithms.steps import resumable
from simcluster.errors import ENDED, PeerLost
from simcluster.overlays.hearing import heard
from simcluster.payload import Message, Payload, lend, pack
from simcluster.transport import ANY, Transport
from simcluster.workloads import Batch, Replica


class Replies:
    """Replies under *tag*, sent as tasks of *group*, so a slow link delays only its own worker.

    Each names the *step* at which its receiver is to work.
    """

    def __init__(self, node: Transport, group: asyncio.TaskGroup, tag: str) -> None:
        self._node, self._group, self._tag = node, group, tag
        self._told: dict[int, int] = {}
        self._under_way: dict[int, Payload] = {}

    def send(self, worker: int, step: int, weights: Sequence[Tensor]) -> None:
        self.send_all([worker], step, weights)

    def send_all(self, workers: Sequence[int], step: int, weights: Sequence[Tensor]) -> None:
        """Send each of *workers* the same *weights*."""
        content = lend(*weights, step=step)
        for worker in workers:
            self._told[worker] = step
            self._under_way[worker] = content
        for sending in sends(self._node, workers, self._tag, content, partial(self._over, content)):
            self._group.create_task(sending)

    def newer_than(self, step: int, worker: int) -> bool:
        """Return whether *worker*, which pushed at *step*, has been sent a later one."""
        return self._told.get(worker, 0) > step

    def under_way_to(self, worker: int) -> bool:
        """Return whether the last reply to *worker* has not left yet: another one would only queue behind it."""
        return worker in self._under_way

    def lost(self, loss: PeerLost, *, enough: bool = True) -> None:
        """Forget a lost worker: after rejoining it starts afresh. Raise *loss* if not *enough* are left."""
        self._told.pop(loss.rank, None)
        if not enough:
            raise loss

    def _over(self, content: Payload, worker: int, is_lost: bool) -> None:
        """Note that *content* is no longer on its way to *worker*.

        A loss is ignored, for the server's recv will report it: the worker may rejoin and push before that.
        """
        if self._under_way.get(worker) is content:
            del self._under_way[worker]
        if is_lost:
            self._told.pop(worker, None)

    async def see_off(self, tag: str, replica: Replica, *, only_behind: bool = False) -> int:
        """After the last step, receive and count what workers still push until they end; it is too late.

        Send the final weights to workers that have not been told the end. *only_behind*: no other worker can push.
        """
        late = 0
        for worker in range(1, self._node.size):
            try:
                while not (only_behind and self.newer_than(replica.steps, worker)):
                    push = await self._node.recv(worker, tag)
                    replica.ledger.receive(push)
                    late += 1
                    if not self.newer_than(push["step"], worker):
                        self.send(worker, replica.steps + 1, replica.snapshot())
            except PeerLost as lost:
                self.lost(lost)
        return late


class Barrier(AsyncIterator[int]):
    """The numbered steps of a server, for `async for`: each ends with a checkpoint if one is due.

    A push of an earlier step is rejected and answered with the current step's weights, unless those were sent already.
    Replies are sent as tasks of *group*, under the tag *reply*. *trains*: the server computes gradients, too. *loose*:
    ranks may be at different steps.
    """

    push = "gradients"

    def __init__(
        self, node: Transport, replica: Replica, group: asyncio.TaskGroup, reply: str, *, trains: bool, loose: bool,
        **counts: int,
    ) -> None:  # fmt: skip
        self._node, self._replica, self._trains, self._loose = node, replica, trains, loose
        self._count = resumable(replica, applied=0, rejected=0, **counts)
        self._replies = Replies(node, group, reply)
        self._batches = endless(replica)
        self._first = self.step = replica.at
        self._late = 0

    async def __anext__(self) -> int:
        """End the current step, if any, and begin the next."""
        if self.step > self._first:
            await self._replica.checkpoint(self.step, batches=self._done(), loose=self._loose, **vars(self._count))
        if self.step >= self._replica.steps:
            raise StopAsyncIteration
        self.step += 1
        return self.step

    async def own(self) -> list[Push]:
        """Compute the server's own gradient of this step, if it trains."""
        return [await self._gradient(next(self._batches))] if self._trains else []

    async def gather(self, own: Sequence[Push], least: int, timeout_s: float | None) -> list[Push]:
        """Wait until *least* ranks, or all that are left, have a gradient of this step: *own*, or a worker's.

        After *timeout_s* one is enough. Return the gradients by rank.
        """
        on_time = {push.rank: push for push in own}
        before = self._count.rejected
        try:
            async with asyncio.timeout(timeout_s):
                await self._collect(on_time, least)
        except TimeoutError:
            await self._collect(on_time, 1)
        self._late = self._count.rejected - before
        return [on_time[rank] for rank in sorted(on_time)]

    def samples(self, pushes: Sequence[Push]) -> list[int]:
        """Return the number of samples in the batch of each of *pushes*."""
        return [self._replica.batch_sizes[push.rank] for push in pushes]

    def answer(self, pushes: Sequence[Push], weights: Sequence[Tensor]) -> None:
        """Send each worker that pushed on to the next step, with *weights*."""
        workers = [push.rank for push in pushes if push.rank != SERVER]
        self._replies.send_all(workers, self.step + 1, weights)

    def call_off(self, pushes: Sequence[Push] = (), weights: Sequence[Tensor] = ()) -> None:
        """Send all other workers on to the next step, unless older weights are still in flight to them."""
        pushed = {push.rank for push in pushes}
        others = [rank for rank in self._node.peers if rank not in pushed and not self._replies.under_way_to(rank)]
        self._replies.send_all(others, self.step + 1, weights or self._replica.snapshot())

    def count(self, pushes: Sequence[Push]) -> None:
        """Count *pushes*, which are in the weights, and record the step."""
        self._replica.ledger.take(push.group for push in pushes)
        self._count.applied += len(pushes)
        samples = self.samples(pushes)
        weights = samples if len(set(samples)) > 1 else [1] * len(pushes)
        loss = float(sum(push["loss"] * weight for push, weight in zip(pushes, weights, strict=True)) / sum(weights))
        self._node.record(step=self.step, loss=loss, **self._counts(pushes))

    async def see_off(self, *, only_behind: bool = False) -> None:
        """After the last step, reject all further pushes; see `Replies.see_off`."""
        self._count.rejected += await self._replies.see_off(self.push, self._replica, only_behind=only_behind)
        counts = {name: value for name, value in vars(self._count).items() if name != "applied"}
        self._node.record(step=self._replica.steps, **counts)

    def _counts(self, pushes: Sequence[Push]) -> dict[str, int]:
        pushed = self.step * self._trains
        return {"contributions": len(pushes), "late": self._late, **vars(self._count), "pushed": pushed}

    async def _collect(self, on_time: dict[int, Push], least: int) -> None:
        node = self._node
        if not node.peers and (back := await heard(node, ANY, self.push)) is not None:
            self._take(back, on_time)
        peers: Sequence[int] = ()
        able = set(on_time)  # the ranks that have pushed or still can
        while True:
            if (now := node.peers) is not peers:
                peers, able = now, {*on_time, *now}
            missing = max(min(least, len(able)), 1) - len(on_time)
            if missing <= 0:
                return
            # An older push is answered at once, so it must not wait for others.
            for arrived in await arrivals(node, self.push, 1 if self._loose else missing):
                self._take(arrived, on_time)
                if isinstance(arrived, Message) and arrived.source in on_time:
                    able.add(arrived.source)

    def _take(self, arrived: Message | PeerLost, on_time: dict[int, Push]) -> None:
        """Keep a gradient of this step, reject an older one; survive a loss while any training rank is left."""
        if isinstance(arrived, PeerLost):
            # A worker ends after the last step: this server has rejoined too late, and does not train on alone.
            self._replies.lost(arrived, enough=arrived.reason != ENDED and bool(on_time or self._node.peers))
            return
        push = Push(arrived, self._replica.ledger.receive(arrived))
        if arrived["step"] == self.step:
            on_time[arrived.source] = push
        else:
            self._reject(push)

    def _reject(self, push: Push) -> None:
        self._count.rejected += 1
        if push.rank != SERVER and not self._replies.newer_than(push["step"], push.rank):
            self._replies.send(push.rank, self.step, self._replica.snapshot())

    async def _gradient(self, batch: Batch) -> Push:
        replica, step = self._replica, self.step
        loss, own = await self._node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))
        message = Message(SERVER, self.push, pack(*own, step=step, loss=loss), 0)
        return Push(message, replica.ledger.hand_in(replica.ledger.drawn))

    def _done(self) -> int:
        return self.step


class BatchWorker(AsyncIterator[Batch]):
    """A worker's batches, for `async for`, until the server's steps are done.

    *step* is its current step: set it to the server's answer, which ends the work on the previous one.
    """

    def __init__(self, node: Transport, replica: Replica, batches: Iterator[Batch], *, loose: bool) -> None:
        self._node, self._replica, self._batches, self._loose = node, replica, batches, loose
        self.step = self._at = 1 + replica.at
        self._pushed: int = replica.restored(pushed=0)

    async def __anext__(self) -> Batch:
        """End the current step if the server has answered, and draw the next batch."""
        replica = self._replica
        if self.step != self._at:
            self._at, drawn = self.step, replica.ledger.drawn
            replica.ledger.settle(drawn, used=False)  # the batches that it dropped
            await replica.checkpoint(self.step - 1, batches=drawn, loose=self._loose, pushed=self._pushed)
            if self.step > replica.steps:
                raise StopAsyncIteration
        if (batch := next(self._batches, None)) is None:
            raise StopAsyncIteration
        return batch

    async def push(self, tag: str, gradients: Sequence[Tensor], loss: float) -> None:
        """Record a gradient of this step, and push it to the server under *tag*; it must not change any more."""
        await self._node.send(SERVER, tag, self._pushes(gradients, loss))

    def push_and_wait(
        self, tag: str, gradients: Sequence[Tensor], loss: float, reply: str
    ) -> Coroutine[Any, Any, Message]:
        """`push`, and return the server's answer under *reply*."""
        return ask(self._node, SERVER, tag, self._pushes(gradients, loss), reply)

    def _pushes(self, gradients: Sequence[Tensor], loss: float) -> Payload:
        self._pushed += 1
        self._node.record(step=self.step, loss=loss, pushed=self._pushed)
        self._replica.ledger.hand_in(self._replica.ledger.drawn)
        return lend(*gradients, step=self.step, loss=loss)
