"""A parameter server without a barrier, and its workers. The server handles pushes in order of
arrival, including those of its own training.
"""

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
from simcluster.algorithms.steps import resumable, steps
from simcluster.compression import Codec
from simcluster.errors import PeerLost
from simcluster.payload import Message, Payload, Scalar, lend, pack
from simcluster.transport import Transport
from simcluster.workloads import BatchGroup, Replica
from simcluster.workloads.shares import weighed


@dataclass(eq=False)
class _OwnPush:
    """A push of the server's own training, which waits for the push to be handled and for its
    answer.

    A push without *content* marks the end of a round.
    """

    content: Payload | None
    ended: asyncio.Future[None]
    answer: asyncio.Future[Payload]


class PushServer(AsyncIterator[Any]):
    """A stream of pushes: `async with PushServer(...) as server: async for push in server.pushes(): ...`.

    Only the body of the loop changes the model, one push at a time. *listener* receives the
    workers' pushes and knows when no more can come. Replies have the tag *reply* and are sent in
    the background, so a slow link delays only its own worker. *keep* is the result of `resumable`
    and contains the server's `version`. *codec* restores compressed pushes before they are handled.
    *judges*: whether batches count as used only once the server takes their push. *done* counts the
    batches of the server's own rounds.
    """

    def __init__(
        self, node: Transport, replica: Replica, listener: PushListener, reply: str, *, keep: SimpleNamespace,
        codec: Codec | None = None, judges: bool = True,
    ) -> None:  # fmt: skip
        self._node = node
        self._replica = replica
        self._listener = listener
        self._reply = reply
        self._state, self._codec = keep, codec
        self._judges = judges
        self.done = replica.done
        self._tasks = asyncio.TaskGroup()
        self._arrived: asyncio.Queue[Message | PeerLost | _OwnPush | None] = asyncio.Queue()
        self._at_hand: _OwnPush | None = None
        self._own: _OwnPush | None = None
        self._next = asyncio.Event()
        # rank -> its last push, the only one that may be answered. Weak, because tensors may be
        # large: an entry lives as long as the algorithm holds the push.
        self._last: WeakValueDictionary[int, Push] = WeakValueDictionary()
        self._tells_losses = False

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self._tasks.create_task(self._listen())
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._tasks.__aexit__(*error)

    def pushes(self) -> AsyncIterator[Push]:
        """Yield pushes until no more can come. A lost worker is not reported; its pushes are no
        longer expected.
        """
        return self

    def news(self) -> AsyncIterator[Push | None]:
        """Yield pushes, and None after a loss or a push without tensors. By the latter a rank
        reports that it has joined.
        """
        self._tells_losses = True
        return self

    async def __anext__(self) -> Any:
        """End the current push, then return the next one, or None in the cases that `news`
        names.
        """
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

    # Methods by which the algorithm handles a push.

    def staleness(self, push: Push) -> int:
        """Return the number of versions between the weights that *push* was computed from and the
        current ones.
        """
        return int(max(self._state.version - push["version"], 0))  # negative only for a worker with a later checkpoint

    def hold(self, push: Push) -> None:
        """Note that the server holds *push* back until `take`."""
        self._replica.ledger.hold(push.group)

    def take(self, pushes: Sequence[Push] | None = None) -> None:
        """Note that *pushes*, or all held pushes if None, are now in the weights."""
        ledger = self._replica.ledger
        ledger.take(ledger.held if pushes is None else [push.group for push in pushes])

    async def step(self, pushes: Sequence[Push], ranks: int, damping: str = "none") -> None:
        """Take one step along the mean of *pushes*, added in rank order and divided by their
        number.

        *ranks*: the number of ranks that push; their schedule has moved on by one step once as many
        pushes are in the weights. *damping*: `inverse` divides each gradient by its staleness if that is above 1.
        """
        replica, pushes = self._replica, sorted(pushes, key=lambda push: push.rank)
        parts = [push.tensors if damping == "none" else damped(push.tensors, self.staleness(push)) for push in pushes]
        await self._node.compute(replica.apply, mean(parts), len(pushes), ranks, cost=replica.apply_cost())
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
        """Count and record *push* as rejected: it stays out of the weights."""
        self._state.rejected += 1
        counts = {"staleness": self.staleness(push), "rejected": self._state.rejected, **more}
        self._node.record(step=self._state.version, **counts)

    def answer(self, push: Push, content: Payload) -> None:
        """Send *content* to the rank that pushed, unless that rank has been lost since: after
        rejoining it pushes again.
        """
        if self._last.get(push.rank) is not push:
            return
        if push.rank != SERVER:
            self._tasks.create_task(self._send(push.rank, self._reply, content))
        elif self._own is not None:
            self._own.answer.set_result(content)

    def call(self, ranks: Iterable[int], tag: str, content: Payload) -> None:
        """Send *content* to *ranks*, which need not have pushed."""
        for rank in ranks:
            self._tasks.create_task(self._send(rank, tag, content))

    def send_weights(self, push: Push, *, only_newer: bool = False) -> None:
        """Answer *push* with the current weights; the server's own training gets none, since it
        uses the server's replica.

        *only_newer*: send no weights if *push* was computed from the current version.
        """
        replica, version = self._replica, self._state.version
        wanted = push.rank != SERVER and (version > push["version"] or not only_newer)
        self.answer(push, lend(*replica.snapshot() if wanted else (), version=version))

    async def keep(self, step: int, *, batches: int | None = None, loose: bool = True) -> None:
        """Write a checkpoint at *step* if one is due; *batches* is the number of batches used, by
        default the number that the ledger has settled.
        """
        batches = self._replica.ledger.settled if batches is None else batches
        step = min(step, self._replica.steps) if loose else step
        await self._replica.checkpoint(step, batches=batches, loose=loose, **vars(self._state))

    # Methods of the server's own training.

    def train(self, training: Coroutine[Any, Any, None]) -> None:
        """Start the server's own *training*, which pushes like a worker."""
        self._listener.train(self._tasks, training)

    async def push(self, *tensors: Tensor, **values: Scalar) -> Message:
        """Hand in a push of the server's own training; wait for the answer and return it."""
        answer = await (await self._hand_in(pack(*tensors, **values))).answer
        return Message(SERVER, self._reply, answer, 0)

    async def end_round(self, done: int, **metrics: float) -> None:
        """Record *metrics* after *done* batches of the server's own training, write a checkpoint if
        one is due, and look for workers.
        """
        self.done = done
        self._node.record(step=done, **metrics)
        await self._hand_in(None)
        self.look()

    def look(self) -> None:
        """Look for workers that have joined or rejoined, and serve them from now on."""
        self._listener.look()

    async def gradients(self, *, records: bool = True) -> None:
        """Train on this server's batches: for each one, push the gradient at the current weights.

        *records*: whether to record each push here; if not, the algorithm does.
        """
        node, replica = self._node, self._replica
        for step, batch in enumerate(replica.batches(), start=1 + replica.done):
            version = self._state.version
            loss, own = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))
            if records:
                node.record(step=self._state.version, pushed=step)
            values = {"version": version, "loss": loss, "pushed": step, "pull": True, "last": step == replica.steps}
            pushed = await self._hand_in(pack(*weighed(replica, own), **values))
            self.look()
            await pushed.answer

    # Internal.

    async def _listen(self) -> None:
        """Put each push (and each loss if `news` is used) into the stream, and wait until the push
        or loss is handled.
        """
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
        """Put a push of the server's own training into the stream, and wait until it is handled."""
        future = asyncio.get_running_loop().create_future
        own = _OwnPush(content, future(), future())
        self._arrived.put_nowait(own)
        await own.ended
        return own

    async def _end(self) -> None:
        """Resume the task that waits for the current push: the listener or the server's own
        training.

        The server's own training runs first, up to its next await.
        """
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
        await asyncio.sleep(0)  # so that the listener begins its next receive before this send
        try:
            await self._node.send(worker, tag, content)
        except PeerLost as loss:
            self._listener.gone(loss)


async def push_to_server(
    node: Transport, replica: Replica, result: Payload, answer: str | None = None
) -> Message | None:  # fmt: skip
    """Push *result*, which was computed from the batches drawn since the last push.

    Return the server's reply, which has tag *answer*.

    If *answer* is None, return None without waiting.
    """
    replica.ledger.hand_in(replica.ledger.drawn)
    await node.send(SERVER, PUSH, result)
    return None if answer is None else await node.recv(SERVER, answer)


async def push_gradients(node: Transport, replica: Replica, *, loose: bool, says_last: bool = False) -> None:
    """Run a worker: push the gradient of each batch, then wait for the answer. An answer without
    weights leaves the replica unchanged.
    """
    state = resumable(replica, version=0)
    async for step, batch in steps(replica, keep=state, loose=loose):
        # Phase 1, compute.
        loss, gradients = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))
        node.record(step=step, loss=loss, pushed=step)

        # Phase 2, push, and pull: answered when the algorithm allows.
        last = {"last": step == replica.steps} if says_last else {}
        replica.ledger.hand_in(replica.ledger.drawn)
        push = lend(*weighed(replica, gradients), version=state.version, loss=loss, **last)
        await node.send(SERVER, PUSH, push)
        message = await node.recv(SERVER, "weights")
        if message.tensors:
            replica.load(message.tensors)
        state.version = message["version"]
