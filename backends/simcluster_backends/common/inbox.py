"""The receiving half of a node, on every backend: pending receives, and the errors they get when a peer is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from simcluster.errors import ENDED, PeerLost
from simcluster.payload import Message
from simcluster.runs import words
from simcluster.transport import ANY, Any_
from simcluster_backends.common.arguments import check_tag, wrong_peer
from simcluster_backends.common.mailbox import Mailbox

Waiting = asyncio.Future[Message]
OnWait = Callable[[Waiting], object]

MOST_UNREAD = 4
"""Limit on the kinds of unread messages, by source and tag, that a report lists."""

INBOX_BYTES = 64 * 1024**2
"""Default limit of bytes per peer that a real node accepts before its algorithm has received them."""


class Inbox:
    """The messages sent to one node and not yet received. *lost* maps every peer that is gone to the reason.

    ENDED means that the peer ended its algorithm; any other reason, that it died. *on_room* is called with the source
    of each queued message once received; *listen* with the source of a recv that is about to wait, or with ANY before a
    message is taken, and may call `lose` if there is news; *on_told* with a peer when its loss is first raised, after
    which it may be `found` again.
    *life_of* returns the incarnation of a peer in use here. *ask* is called with source, tag and receiver of a wait.
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
    ) -> None:
        self.mailbox: Mailbox[Waiting] = Mailbox()
        self.lost: dict[int, str] = {}
        self.names, self._rank, self._size, self._loop = names, rank, len(names), loop
        self._on_room, self._listen, self._on_told, self._life_of = on_room, listen, on_told, life_of
        self._ask = ask
        self._told: set[int] = set()  # only for membership tests
        self._untold: list[tuple[int, int]] = []  # the dead not yet raised by any recv(ANY), and arrivals until then
        self._to_come: set[int] = set()  # ranks that have never been there; only counted
        self._peers: tuple[int, ...] | None = None  # until *lost* changes
        self.is_closed = False  # then messages are dropped

    @property
    def peers(self) -> tuple[int, ...]:
        """The ranks that are not gone, as far as this node knows: the same object until that changes."""
        if self._peers is None:
            lost, own = self.lost, self._rank
            self._peers = tuple([rank for rank in range(self._size) if rank != own and rank not in lost])
        return self._peers

    @property
    def has_news(self) -> bool:
        return bool(self.lost)

    def check_peer(self, rank: int) -> None:
        """Raise ValueError unless *rank* is another node's, TypeError if it is no rank at all."""
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
        """Return the error for callers that need *rank*, which is gone."""
        if rank not in self._told:
            self._told.add(rank)
            self._on_told(rank)
        return PeerLost(rank, self.names[rank], self.lost.get(rank, ""), self._life_of(rank))

    async def take(self, source: int | Any_, tag: str | Any_, on_wait: OnWait | None = None) -> Message:
        """Keep all promises of `Transport.recv` except a backend's counting.

        *on_wait* is called with the future that this waits on, if any: failing it with a PeerLost fails this call.
        """
        if not isinstance(source, Any_):
            self.check_peer(source)
        while (message := self._queued(source, tag)) is None:
            if not self._misses(source):
                return await self._arrival(source, tag, on_wait)
            await asyncio.sleep(0)
            if self._misses(source):  # else another recv(ANY) has raised it meanwhile
                raise self._loss(source)
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.put(message, again=True)
            raise
        self._on_room(message.source)
        return message

    def put(self, message: Message, *, again: bool = False) -> None:
        """Hand *message*, which has arrived, to a waiting receiver, or queue it; *again* if its recv was cancelled."""
        if self.is_closed:
            return
        receiver = self.mailbox.restore(message) if again else self.mailbox.deliver(message)
        while receiver is not None and receiver.done():
            # Cancelled while waiting, but not resumed yet: serve the next one.
            receiver = self.mailbox.restore(message)
        if receiver is not None:
            receiver.set_result(message)

    def lose(self, rank: int, reason: str) -> bool:
        """Fail the receivers that wait for *rank*, and if it died, one recv(ANY). Return False if already known."""
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
        """Record that *rank* has never been there: no recv(ANY) raises that, and it may be `found` at any time."""
        self.lost[rank], self._peers = reason, None
        self._told.add(rank)
        self._to_come.add(rank)

    def has_told(self, rank: int) -> bool:
        """Return whether the loss of *rank* has been raised here."""
        return rank in self._told

    def found(self, rank: int) -> None:
        """Record that *rank* is back as a new incarnation: drop everything from the previous one."""
        self._told.discard(rank)
        self._to_come.discard(rank)
        self.lost.pop(rank, None)
        self._peers = None
        self._untold = [each for each in self._untold if each[0] != rank]
        self.mailbox.drop(rank)

    def unread(self) -> list[str]:
        """Describe the messages that no recv has taken, for the report of a run that does not end. In any thread."""
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
        check_tag(tag)  # not before: a message that was found has a valid tag
        receiver: Waiting = asyncio.Future(loop=self._loop)  # never hashed: the simulated loop's, which are, cost more
        self.mailbox.wait(source, tag, receiver)
        if on_wait is not None:
            on_wait(receiver)
        if self._ask is not None:
            self._ask(source, tag, receiver)
        try:
            return await receiver
        except PeerLost:
            self.mailbox.withdraw(receiver)  # it is still there if it was failed from outside
            raise
        except asyncio.CancelledError:
            self.give_up(source, receiver)
            raise

    def give_up(self, source: int | Any_, receiver: Waiting) -> None:
        """Note that the wait of *receiver* was cancelled: it loses no message."""
        if not receiver.done() or receiver.cancelled():
            self.mailbox.withdraw(receiver)
        elif (error := receiver.exception()) is None:
            self.put(receiver.result(), again=True)
        elif isinstance(source, Any_) and isinstance(error, PeerLost) and error.reason != ENDED:
            self._untold.insert(0, (error.rank, 0))  # another recv(ANY) must raise it
            self._tell_any()

    def _queued(self, source: int | Any_, tag: str | Any_) -> Message | None:
        """Remove and return the message that a recv gets at once, if any; otherwise all losses so far are known."""
        if isinstance(source, Any_):
            self._listen(source)
            return self.mailbox.take(source, tag, self._untold[0][1] if self._untold else None)
        if (message := self.mailbox.take(source, tag)) is None:
            self._listen(source)
        return message

    def _misses(self, source: int | Any_) -> bool:
        """Return whether a recv from *source* must raise; with no peer left, every recv(ANY) must."""
        if isinstance(source, Any_):
            return bool(self._untold) or self._alone
        return source in self.lost

    @property
    def _alone(self) -> bool:
        """Whether all other nodes are gone, at least one after having been there: absent ones may still join."""
        return len(self._to_come) < len(self.lost) == len(self.names) - 1

    def _loss(self, source: int | Any_) -> PeerLost:
        """Return the error for *source*; for ANY the next unreported loss, or the last again if no peer is left."""
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
    """Let *receiver* raise *error*, unless it has been served or cancelled."""
    if not receiver.done():
        receiver.set_exception(error)
