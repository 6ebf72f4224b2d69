"""Both ends of a server without a barrier: pushes in order of arrival, including its own training's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Self
from weakref import WeakValueDictionary

from torch import Tensor

from simcluster.algorithms.parameter_server.server import SERVER, Push, damped, mean
from simcluster.algorithms.parameter_server.serving import PUSH, PushListener
from simcluster.algorithms.parameter_server.star import ask
from simcluster.algorithms.steps import resumable, steps
from simcluster.compression import Codec
from simcluster.errors import PeerLost
from simcluster.payload import Message, Payload, Scalar, lend, pack
from simcluster.transport import Transport
from simcluster.workloads import BatchGroup, Replica


@dataclass(eq=False)
class _OwnPush:
    """A push of the server's own training, which waits for its end and answer; without *content*, a round's end."""

    content: Payload | None
    ended: asyncio.Future[None]
    answer: asyncio.Future[Payload]


class PushServer(AsyncIterator[Any]):
    """A stream of pushes: `async with PushServer(...) as server: async for push in server.pushes(): ...`.

    Only the body of the loop changes the model, one push at a time. *listener* knows which workers have pushes to come.
    Replies have the tag *reply* and leave in the background, so a slow link delays only its own worker. *keep* is the
    result of `resumable`, with the server's `version`. *codec*: restores workers' pushes before their turn. *judges*:
    whether batches are in the weights only once the server takes their push. *done* counts the batches of the server's
    own rounds.
    """

    def __init__(
        self, node: Transport, replica: Replica, listener: PushListener, reply: str, *, keep: SimpleNamespace,
        codec: Codec | None = None, judges: bool = True,
    ) -> None:  # fmt: skip
        self._node, self._replica, self._listener, self._reply = node, replica, listener, reply
        self._state, self._codec = keep, codec
        self._judges = judges
        self.done = replica.done
        self._tasks = asyncio.TaskGroup()
        self._arrived: asyncio.Queue[Message | PeerLost | _OwnPush | None] = asyncio.Queue()
        self._at_hand: _OwnPush | None = None
        self._own: _OwnPush | None = None
        self._next = asyncio.Event()
        # By rank, the only push that may be answered, as long as the algorithm has it: its tensors may be large.
        self._last: WeakValueDictionary[int, Push] = WeakValueDictionary()
        self._tells_losses = False

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self._tasks.create_task(self._listen())
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._tasks.__aexit__(*error)

    def pushes(self) -> AsyncIterator[Push]:
        """Yield pushes until no more can come. A loss only changes which ones are expected."""
        return self

    def news(self) -> AsyncIterator[Push | None]:
        """Yield pushes, and None after a loss or a push without tensors, by which a rank reports that it has joined."""
        self._tells_losses = True
        return self

    async def __anext__(self) -> Any:
        """End the current push, and take up the next."""
        await self._end()
        while isinstance(item := await self._arrived.get(), _OwnPush) and item.content is None:
            self._at_hand = item
            await self.keep(self.done, batches=self.done)
            await self._end()
        if item is None:
            raise StopAsyncIteration
        if isinstance(item, PeerLost):
            self._lose(item)
            return None
        if isinstance(item, Message) and not item.tensors:
            return None
        ledger = self._replica.ledger
        if isinstance(item, _OwnPush):
            self._own = self._at_hand = item
            message = Message(SERVER, PUSH, item.content or Payload(), 0)
            group = ledger.hand_in(ledger.drawn) if self._judges else BatchGroup(SERVER, 0, 0)
        else:
            message, group = item, ledger.receive(item) if self._judges else BatchGroup(item.source, 0, 0)
        push = Push(message, group)
        self._last[push.rank] = push
        self._listener.came(push)
        return push

    # what the algorithm does with a push

    def staleness(self, push: Push) -> int:
        """Return how many versions the weights are ahead of those that *push* was computed from."""
        return int(max(self._state.version - push["version"], 0))  # negative only for a worker with a later checkpoint

    def hold(self, push: Push) -> None:
        """Note that the server holds *push* back, until `take`."""
        self._replica.ledger.hold(push.group)

    def take(self, pushes: Sequence[Push] | None = None) -> None:
        """Note that *pushes*, or all held ones, are now in the weights."""
        ledger = self._replica.ledger
        ledger.take(ledger.held if pushes is None else [push.group for push in pushes])

    async def step(self, pushes: Sequence[Push], damping: str = "none") -> None:
        """Take one step with the mean of *pushes*, in rank order, divided by the number actually summed.

        *damping*: `inverse` divides each gradient by its staleness, if above 1.
        """
        replica, pushes = self._replica, sorted(pushes, key=lambda push: push.rank)
        parts = [push.tensors if damping == "none" else damped(push.tensors, self.staleness(push)) for push in pushes]
        await self._node.compute(replica.apply, mean(parts), cost=replica.apply_cost())
        self.count(pushes)

    def count(self, pushes: Sequence[Push], *, versions: int = 1, **more: float) -> None:
        """Count and record *pushes*, which are now in the weights and advance the version by *versions*."""
        state, stale = self._state, [self.staleness(push) for push in pushes]
        self.take(pushes)
        state.version += versions
        state.applied += len(pushes)
        for push, staleness in zip(pushes, stale, strict=True):
            counts = {"staleness": staleness, "applied": state.applied, **more}
            self._node.record(step=state.version, loss=push["loss"], **counts)

    def reject(self, push: Push, **more: float) -> None:
        """Count and record *push*, which stays out of the weights."""
        self._state.rejected += 1
        counts = {"staleness": self.staleness(push), "rejected": self._state.rejected, **more}
        self._node.record(step=self._state.version, **counts)

    def answer(self, push: Push, content: Payload) -> None:
        """Send *content* to the rank that pushed, unless it was lost since: after rejoining it asks again."""
        if self._last.get(push.rank) is not push:
            return
        if push.rank != SERVER:
            self._tasks.create_task(self._send(push.rank, self._reply, content))
        elif self._own is not None:
            self._own.answer.set_result(content)

    def call(self, ranks: Iterable[int], tag: str, content: Payload) -> None:
        """Send *content* to *ranks*, which have not asked for it."""
        for rank in ranks:
            self._tasks.create_task(self._send(rank, tag, content))

    def send_weights(self, push: Push, *, only_newer: bool = False) -> None:
        """Answer *push* with the current weights; if *only_newer*, only if they differ from those it was computed from.

        The server's own training has them already.
        """
        replica, version = self._replica, self._state.version
        wanted = push.rank != SERVER and (version > push["version"] or not only_newer)
        self.answer(push, lend(*replica.snapshot() if wanted else (), version=version))

    async def keep(self, step: int, *, batches: int | None = None, loose: bool = True) -> None:
        """Write a checkpoint at *step* if one is due."""
        batches = self._replica.ledger.settled if batches is None else batches
        step = min(step, self._replica.steps) if loose else step
        await self._replica.checkpoint(step, batches=batches, loose=loose, **vars(self._state))

    # the server's own training

    def train(self, training: Coroutine[Any, Any, None]) -> None:
        """Start the server's own *training*, which pushes like a worker."""
        self._listener.train(self._tasks, training)

    async def push(self, *tensors: Tensor, **values: Scalar) -> Message:
        """Hand in a push of the server's own training; return the answer."""
        answer = await (await self._hand_in(pack(*tensors, **values))).answer
        return Message(SERVER, self._reply, answer, 0)

    async def end_round(self, done: int, **metrics: float) -> None:
        """Record that *done* own batches are done, write a checkpoint if one is due, and look for workers."""
        self.done = done
        self._node.record(step=done, **metrics)
        await self._hand_in(None)
        self.look()

    def look(self) -> None:
        """Look for workers: one that has (re)joined is served from now on."""
        self._listener.look()

    async def gradients(self, *, records: bool = True) -> None:
        """Train on this server's batches, pushing the gradient of each at the current weights.

        *records*: each push is recorded at once; otherwise the algorithm records it.
        """
        node, replica = self._node, self._replica
        for step, batch in enumerate(replica.batches(), start=1 + replica.done):
            version = self._state.version
            loss, own = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))
            if records:
                node.record(step=self._state.version, pushed=step)
            values = {"version": version, "loss": loss, "pushed": step, "pull": True, "last": step == replica.steps}
            pushed = await self._hand_in(pack(*own, **values))
            self.look()
            await pushed.answer

    # internal

    async def _listen(self) -> None:
        """Put each push, and each loss that the algorithm wants, into the stream, and wait for its end."""
        while (news := await self._listener.next()) is not None:
            if isinstance(news, PeerLost) and not self._tells_losses:
                self._lose(news)
                continue
            if isinstance(news, Message) and news.tensors and self._codec is not None:
                tensors = await self._codec.restore(self._node, news.tensors)
                content = Payload(tuple(tensors), news.payload.values)
                news = Message(news.source, news.tag, content, news.size_bytes, incarnation=news.incarnation)
            self._next.clear()
            self._arrived.put_nowait(news)
            await self._next.wait()
        self._arrived.put_nowait(None)

    async def _hand_in(self, content: Payload | None) -> _OwnPush:
        """Put an own push into the stream, and wait for its end."""
        future = asyncio.get_running_loop().create_future
        own = _OwnPush(content, future(), future())
        self._arrived.put_nowait(own)
        await own.ended
        return own

    async def _end(self) -> None:
        """Resume the sender of the current push: own training starts its next work before the algorithm continues."""
        own, self._at_hand = self._at_hand, None
        if own is None:
            self._next.set()
        else:
            own.ended.set_result(None)
            await asyncio.sleep(0)

    def _lose(self, loss: PeerLost) -> None:
        self._last.pop(loss.rank, None)
        self._listener.lost(loss)

    async def _send(self, worker: int, tag: str, content: Payload) -> None:
        await asyncio.sleep(0)  # listen for the next push before answering this one
        try:
            await self._node.send(worker, tag, content)
        except PeerLost as loss:
            self._listener.gone(loss)


async def push_to_server(
    node: Transport, replica: Replica, result: Payload, answer: str | None = None
) -> Message | None:  # fmt: skip
    """Push a worker's *result* of the batches drawn since its last push; return the *answer* under that tag, if any."""
    replica.ledger.hand_in(replica.ledger.drawn)
    if answer is not None:
        return await ask(node, SERVER, PUSH, result, answer)
    await node.send(SERVER, PUSH, result)
    return None


async def push_gradients(node: Transport, replica: Replica, *, loose: bool, says_last: bool = False) -> None:
    """Be a worker: push the gradient of each batch, then pull the weights, which the server may answer without."""
    state = resumable(replica, version=0)
    async for step, batch in steps(replica, keep=state, loose=loose):
        # Phase 1, compute.
        loss, gradients = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))
        node.record(step=step, loss=loss, pushed=step)

        # Phase 2, push, and pull: answered when the algorithm allows.
        last = {"last": step == replica.steps} if says_last else {}
        replica.ledger.hand_in(replica.ledger.drawn)
        push = lend(*gradients, version=state.version, loss=loss, **last)
        message = await ask(node, SERVER, PUSH, push, "weights")
        if message.tensors:
            replica.load(message.tensors)
        state.version = message["version"]
