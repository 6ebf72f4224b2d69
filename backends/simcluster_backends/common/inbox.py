"""The inbox of a node, on every backend: messages, pending receives, and the losses of peers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from simcluster.errors import ENDED, PeerLost
from simcluster.payload import Message
from simcluster.runs import words
from simcluster.transport import ANY, Any_
from simcluster_backends.common.arguments import check_tag, wrong_peer
from simcluster_backends.common.mailbox import Mailbox

Waiting = asyncio.Future[Message]
OnWait = Callable[[Waiting], object]

MOST_UNREAD = 4
"""The maximum number of (source, tag) pairs with unread messages that a report lists."""

INBOX_BYTES = 64 * 1024**2
"""The default limit on the bytes of unread messages that a node holds from one peer."""


class PeerNews(Protocol):
    """A source of news about peers. *has_news* says whether any peer has ever departed."""

    @property
    def has_news(self) -> bool: ...


class Inbox:
    """The unread messages of one node, and its pending receives. *lost* maps lost peers to reasons.

    The reason ENDED means that the peer ended its algorithm; any other means that the peer died.
    *on_room* is called with the source of each queued message when a recv takes the message.
    *on_told* is called with a peer when its loss is first raised; the peer may then be `found`
    again. *life_of* returns the incarnation of a peer. *ask* is called with the source, tag and
    receiver of each recv that waits.

    If *news* reports departures, a recv calls *listen* with its source: a recv(ANY) before it takes
    a message, any other recv before it waits. *listen* may call `lose`.
    """

    def __init__(
        self,
        rank: int,
        names: Sequence[str],
        loop: asyncio.AbstractEventLoop,
        on_room: Callable[[int], object],
        listen: Callable[[int | Any_], object] = lambda source: None,
        on_told: Callable[[int], object] = lambda rank: None,
        life_of: Callable[[int], int] = lambda rank: 0,
        ask: Callable[[int | Any_, str | Any_, Waiting], object] | None = None,
        news: PeerNews | None = None,
    ) -> None:
        self.mailbox: Mailbox[Waiting] = Mailbox()
        self.lost: dict[int, str] = {}
        self.names = names
        self._rank = rank
        self._size = len(names)
        self._loop = loop
        self._on_room = on_room
        self._listen = listen
        self._on_told = on_told
        self._life_of = life_of
        self._ask = ask
        self.news: PeerNews = self if news is None else news
        self._told: set[int] = set()  # used only for membership tests, so its order is irrelevant
        # Dead peers that no recv(ANY) has raised yet, with the number of arrivals before the loss.
        self._untold: list[tuple[int, int]] = []
        self._to_come: set[int] = set()  # ranks that have not joined yet; only their number is used
        self._peers: tuple[int, ...] | None = None  # a cache, valid until *lost* changes
        self.is_closed = False  # once closed, it drops all messages

    @property
    def peers(self) -> tuple[int, ...]:
        """The other ranks that this node has not lost. The tuple is cached until *lost* changes."""
        if self._peers is None:
            lost, own = self.lost, self._rank
            self._peers = tuple([rank for rank in range(self._size) if rank != own and rank not in lost])
        return self._peers

    @property
    def has_news(self) -> bool:
        return bool(self.lost)

    def check_peer(self, rank: int) -> None:
        """Raise ValueError unless *rank* is another node's, TypeError if it is not a number."""
        try:
            if 0 <= rank < self._size and rank != self._rank:
                return
        except TypeError:
            pass
        raise wrong_peer(rank, self._rank, self.names)

    def died(self, rank: int) -> bool:
        """Return whether *rank* is gone without having ended its algorithm."""
        return self.lost.get(rank, ENDED) != ENDED

    def error(self, rank: int) -> PeerLost:
        """Return the error for a caller that needs the lost peer *rank*; mark the loss as raised."""
        if rank not in self._told:
            self._told.add(rank)
            self._on_told(rank)
        return PeerLost(rank, self.names[rank], self.lost.get(rank, ""), self._life_of(rank))

    async def take(self, source: int | Any_, tag: str | Any_, on_wait: OnWait | None = None) -> Message:
        """Receive a message as `Transport.recv` does, without a backend's records.

        If it must wait, call *on_wait* with the future that it waits for. A PeerLost that is set on
        this future is raised here.
        """
        if not isinstance(source, Any_):
            self.check_peer(source)
        while (message := self._queued(source, tag)) is None:
            if not self._misses(source):
                return await self._arrival(source, tag, on_wait)
            await asyncio.sleep(0)
            if self._misses(source):  # another recv(ANY) may have raised the loss meanwhile
                raise self._loss(source)
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.put(message, again=True)
            raise
        self._on_room(message.source)
        return message

    def put(self, message: Message, *, again: bool = False) -> None:
        """Give *message*, which has arrived, to a waiting receiver, or queue it.

        With *again*, a cancelled recv hands *message* back; it keeps its place in the queue.
        """
        if self.is_closed:
            return
        receiver = self.mailbox.restore(message) if again else self.mailbox.deliver(message)
        while receiver is not None and receiver.done():
            # Cancelled while waiting, but not resumed yet: serve the next one.
            receiver = self.mailbox.restore(message)
        if receiver is not None:
            receiver.set_result(message)

    def lose(self, rank: int, reason: str) -> bool:
        """Record the loss of *rank*, and fail the receivers that wait for *rank*.

        If *rank* died, also fail one recv(ANY). If no peer is left, fail every recv(ANY). Return
        False, and do nothing, if the loss is known.
        """
        if rank in self.lost:
            return False
        self.lost[rank], self._peers = reason, None
        for receiver in self.mailbox.waiting_for(rank):
            fail(receiver, self.error(rank))
        if reason != ENDED:
            self._untold.append((rank, self.mailbox.arrivals))
        self._tell_any()
        return True

    def misses_from_the_start(self, rank: int, reason: str) -> None:
        """Record that *rank* has not joined yet. No recv(ANY) raises this; `found` may follow."""
        self.lost[rank], self._peers = reason, None
        self._told.add(rank)
        self._to_come.add(rank)

    def has_told(self, rank: int) -> bool:
        """Return whether the loss of *rank* has been raised here."""
        return rank in self._told

    def found(self, rank: int) -> None:
        """Record that *rank* is back as a new incarnation; forget the previous one."""
        self._told.discard(rank)
        self._to_come.discard(rank)
        self.lost.pop(rank, None)
        self._peers = None
        self._untold = [each for each in self._untold if each[0] != rank]
        self.mailbox.drop(rank)

    def unread(self) -> list[str]:
        """Describe the unread messages, for the report of a run that hangs. Safe in any thread."""
        found = [
            f"{words.plural(number, 'message')} from rank {source} ({self.names[source]}) with tag {tag!r}"
            for source, tag, number in self.mailbox.unread()
        ]
        more = [f"{len(found) - MOST_UNREAD} more kinds"] if len(found) > MOST_UNREAD else []
        return [*found[:MOST_UNREAD], *more]

    def close(self) -> None:
        """Stop receiving: drop queued and future messages."""
        self.is_closed = True
        self.mailbox = Mailbox()

    async def _arrival(self, source: int | Any_, tag: str | Any_, on_wait: OnWait | None) -> Message:
        if type(tag) is not str:  # checked only here: a recv that finds a message has a valid tag
            check_tag(tag)
        # loop.create_future() would cost more: the simulated loop makes its futures hashable.
        receiver: Waiting = asyncio.Future(loop=self._loop)
        self.mailbox.wait(source, tag, receiver)
        if on_wait is not None:
            on_wait(receiver)
        if self._ask is not None:
            self._ask(source, tag, receiver)
        try:
            return await receiver
        except PeerLost:
            self.mailbox.withdraw(receiver)  # still in the mailbox if it failed through *on_wait*
            raise
        except asyncio.CancelledError:
            self.give_up(source, receiver)
            raise

    def give_up(self, source: int | Any_, receiver: Waiting) -> None:
        """Remove the cancelled *receiver*; requeue a message or loss that it was given."""
        if not receiver.done() or receiver.cancelled():
            self.mailbox.withdraw(receiver)
        elif (error := receiver.exception()) is None:
            self.put(receiver.result(), again=True)
        elif isinstance(source, Any_) and isinstance(error, PeerLost) and error.reason != ENDED:
            self._untold.insert(0, (error.rank, 0))  # the next recv(ANY) must raise this loss
            self._tell_any()

    def _queued(self, source: int | Any_, tag: str | Any_) -> Message | None:
        """Remove and return the queued message for a recv; None if the recv must wait or raise.

        Before it returns None, *listen* has reported all losses so far.
        """
        if isinstance(source, Any_):
            if self.news.has_news:
                self._listen(source)
            return self.mailbox.take(source, tag, self._untold[0][1] if self._untold else None)
        if (message := self.mailbox.take(source, tag)) is None and self.news.has_news:
            self._listen(source)
        return message

    def _misses(self, source: int | Any_) -> bool:
        """Return whether a recv from *source* must raise; a recv(ANY) must if no peer is left."""
        if isinstance(source, Any_):
            return bool(self._untold) or self._alone
        return source in self.lost

    @property
    def _alone(self) -> bool:
        """Whether no other node is left. False if all the others have yet to join."""
        return len(self._to_come) < len(self.lost) == len(self.names) - 1

    def _loss(self, source: int | Any_) -> PeerLost:
        """Return the error for *source*; for ANY, the next loss not yet raised, or the last."""
        if isinstance(source, Any_):
            return self.error(self._untold.pop(0)[0] if self._untold else next(reversed(self.lost)))
        return self.error(source)

    def _tell_any(self) -> None:
        while self._untold or self._alone:
            receiver = self.mailbox.first_waiting_for_any()
            if receiver is None:
                return
            if not receiver.done():
                fail(receiver, self._loss(ANY))


def fail(receiver: Waiting, error: BaseException) -> None:
    """Make *receiver* raise *error*, unless it has been served or cancelled."""
    if not receiver.done():
        receiver.set_exception(error)
