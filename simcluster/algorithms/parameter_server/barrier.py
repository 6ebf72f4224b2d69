"""A parameter server with a barrier, and its workers. At every step the server waits for gradients
taken at its current weights.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from torch import Tensor

from simcluster.algorithms.parameter_server.server import SERVER, Push, endless
from simcluster.algorithms.steps import resumable
from simcluster.compression import Codec
from simcluster.errors import ENDED, PeerLost
from simcluster.overlays.hearing import arrival, heard
from simcluster.payload import Message, Payload, lend, pack
from simcluster.transport import ANY, Transport
from simcluster.workloads import Batch, Replica


class Replies:
    """Replies to workers, sent under *tag* in tasks of *group*, so a slow link delays only its own
    worker.

    Each reply names the *step* that its receiver works on next.
    """

    def __init__(self, node: Transport, group: asyncio.TaskGroup, tag: str) -> None:
        self._node = node
        self._group = group
        self._tag = tag
        self._told: dict[int, int] = {}
        self._under_way: dict[int, Payload] = {}

    def send(self, worker: int, step: int, weights: Sequence[Tensor]) -> None:
        self.send_all([worker], step, weights)

    def send_all(self, workers: Sequence[int], step: int, weights: Sequence[Tensor]) -> None:
        """Send the same *weights* to each of *workers*."""
        content = lend(*weights, step=step)
        for worker in workers:
            self._told[worker] = step
            self._under_way[worker] = content
        for worker in workers:
            self._group.create_task(self._send(worker, content))

    def newer_than(self, step: int, worker: int) -> bool:
        """Return whether *worker*, which pushed at *step*, has since been sent a later step."""
        return self._told.get(worker, 0) > step

    def under_way_to(self, worker: int) -> bool:
        """Return whether the last reply to *worker* has not left yet. Another reply would only
        queue after it.
        """
        return worker in self._under_way

    def lost(self, loss: PeerLost, *, enough: bool = True) -> None:
        """Forget what a lost worker was sent: if it rejoins, it starts afresh.

        Raise *loss* unless *enough*, that is, unless enough ranks are left.
        """
        self._told.pop(loss.rank, None)
        if not enough:
            raise loss

    async def see_off(self, tag: str, replica: Replica, *, only_behind: bool = False) -> int:
        """After the last step, receive late pushes until all workers have ended.

        Return the number of late pushes.

        Answer each push with the final weights unless its worker has been sent them already.
        *only_behind*: wait only for workers that have not been sent the final weights, since no
        other worker can push.
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

    async def _send(self, worker: int, content: Payload) -> None:
        try:
            await self._node.send(worker, self._tag, content)
        except PeerLost:
            # The server's next recv will raise the loss, but the worker may rejoin and push before
            # that.
            self._told.pop(worker, None)
        finally:
            if self._under_way.get(worker) is content:
                del self._under_way[worker]


class Barrier(AsyncIterator[int]):
    """The numbered steps of a server, for `async for`. Each step ends with a checkpoint if one is
    due.

    A push of an earlier step is rejected and answered with the current step's weights, unless the
    worker has been sent these already. Replies are sent in tasks of *group*, under the tag *reply*.
    *trains*: whether the server also computes gradients. *loose*: whether ranks may be at different
    steps.
    """

    push = "gradients"
    reply = "reply"

    def __init__(
        self, node: Transport, replica: Replica, group: asyncio.TaskGroup, *, trains: bool, loose: bool, **counts: int
    ) -> None:
        self._node = node
        self._replica = replica
        self._trains = trains
        self._loose = loose
        self._count = resumable(replica, applied=0, rejected=0, **counts)
        self._replies = Replies(node, group, self.reply)
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
        """Compute and return the server's own gradient of this step; return an empty list if it
        does not train.
        """
        return [await self._gradient(next(self._batches))] if self._trains else []

    async def gather(self, own: Sequence[Push], least: int, timeout_s: float | None) -> list[Push]:
        """Wait until *least* ranks, or all ranks that are left, have a gradient of this step.

        Return the gradients in rank order.

        *own* holds the server's own gradient, if any. After *timeout_s*, one gradient is enough.
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
        """Send *weights* and the number of the next step to each worker that made one of
        *pushes*.
        """
        workers = [push.rank for push in pushes if push.rank != SERVER]
        self._replies.send_all(workers, self.step + 1, weights)

    def call_off(self, pushes: Sequence[Push] = (), weights: Sequence[Tensor] = ()) -> None:
        """Send weights and the number of the next step to all workers that made none of *pushes*,
        except for workers whose last reply has not left yet.

        *weights*: by default the current ones.
        """
        pushed = {push.rank for push in pushes}
        others = [rank for rank in self._node.peers if rank not in pushed and not self._replies.under_way_to(rank)]
        self._replies.send_all(others, self.step + 1, weights or self._replica.snapshot())

    def count(self, pushes: Sequence[Push]) -> None:
        """Count *pushes*, which are now in the weights, and record the step."""
        self._replica.ledger.take(push.group for push in pushes)
        self._count.applied += len(pushes)
        samples = self.samples(pushes)
        weights = samples if len(set(samples)) > 1 else [1] * len(pushes)
        loss = float(sum(push["loss"] * weight for push, weight in zip(pushes, weights, strict=True)) / sum(weights))
        self._node.record(step=self.step, loss=loss, **self._counts(pushes))

    async def see_off(self, *, only_behind: bool = False) -> None:
        """After the last step, receive and reject all late pushes. See `Replies.see_off`."""
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
        able = set(on_time)  # the ranks that have pushed or can still push
        while True:
            if (now := node.peers) is not peers:
                peers, able = now, {*on_time, *now}
            if len(on_time) >= max(min(least, len(able)), 1):
                return
            arrived = await arrival(node, ANY, self.push)
            self._take(arrived, on_time)
            if isinstance(arrived, Message) and arrived.source in on_time:
                able.add(arrived.source)

    def _take(self, arrived: Message | PeerLost, on_time: dict[int, Push]) -> None:
        """Keep a gradient of this step, or reject an older one. Raise a loss if no training rank is
        left, or if this server rejoined too late.
        """
        if isinstance(arrived, PeerLost):
            # Workers end only after the last step. If one has ended, this server rejoined too late
            # and must not train on alone.
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
    """A worker's batches, for `async for`, until the server's last step is done or the batches run
    out.

    *step* is the worker's current step. Set it to the step in the server's answer; this ends the
    previous step. *codec*: the compression of the gradients that it pushes.
    """

    def __init__(
        self, node: Transport, replica: Replica, batches: Iterator[Batch], *, loose: bool, codec: Codec | None = None
    ) -> None:
        self._node = node
        self._replica = replica
        self._batches = batches
        self._loose = loose
        self.step = self._at = 1 + replica.at
        self._pushed: int = replica.restored(pushed=0)
        compresses = codec is not None and codec.kind is not None
        self._codec: Codec | None = replica.restored(codec=codec) if compresses else None

    async def __anext__(self) -> Batch:
        """End the current step if the server has answered, and draw the next batch."""
        replica = self._replica
        if self.step != self._at:
            self._at, drawn = self.step, replica.ledger.drawn
            # Batches that were drawn but not pushed are dropped.
            replica.ledger.settle(drawn, used=False)
            kept: dict[str, Any] = {} if self._codec is None else {"codec": self._codec}
            await replica.checkpoint(self.step - 1, batches=drawn, loose=self._loose, pushed=self._pushed, **kept)
            if self.step > replica.steps:
                raise StopAsyncIteration
        if (batch := next(self._batches, None)) is None:
            raise StopAsyncIteration
        return batch

    async def push(self, tag: str, gradients: Sequence[Tensor], loss: float) -> None:
        """Record the loss of this step, and push *gradients* under *tag*.

        The gradients are lent, so they must not change any more.
        """
        if self._codec is not None:
            gradients = await self._codec.compress(self._node, gradients)
        self._pushed += 1
        self._node.record(step=self.step, loss=loss, pushed=self._pushed)
        self._replica.ledger.hand_in(self._replica.ledger.drawn)
        await self._node.send(SERVER, tag, lend(*gradients, step=self.step, loss=loss))

    async def push_and_wait(self, tag: str, gradients: Sequence[Tensor], loss: float, reply: str) -> Message:
        """Push *gradients*, and return the server's answer, which arrives under *reply*."""
        await self.push(tag, gradients, loss)
        return await self._node.recv(SERVER, reply)
