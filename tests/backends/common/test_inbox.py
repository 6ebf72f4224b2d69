"""The inbox that both backends receive by: matching, losses told, and nothing lost to whoever is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simcluster_backends.common.inbox import Inbox

from simcluster.errors import ENDED, PeerLost
from simcluster.payload import Message, Payload
from simcluster.transport import ANY

SIZE = 4  # rank 0's inbox, and its peers 1, 2 and 3


def with_inbox(test: Callable[[Inbox], Awaitable[Any]], on_room: Callable[[int], object] = lambda source: None) -> Any:
    async def main() -> Any:
        names = [f"n{rank}" for rank in range(SIZE)]
        return await test(Inbox(0, names, asyncio.get_running_loop(), on_room))

    return asyncio.run(main())


def message(source: int, tag: str = "t", number: int = 0) -> Message:
    return Message(source, tag, Payload((), {"number": number}), 10)


async def outcomes(*tasks: asyncio.Task[Message]) -> list[Any]:
    """Of each task the number received, the rank lost, or 'waits' if it is not done."""
    for _ in range(5):
        await asyncio.sleep(0)
    told: list[Any] = []
    for task in tasks:
        if not task.done():
            told.append("waits")
            task.cancel()
        elif task.cancelled():
            told.append("cancelled")
        elif (error := task.exception()) is not None:
            assert isinstance(error, PeerLost)
            told.append(f"lost {error.rank}")
        else:
            told.append(task.result()["number"])
    await asyncio.gather(*tasks, return_exceptions=True)
    return told


def test_room_is_told_of_what_was_queued_and_not_of_what_was_waited_for() -> None:
    room: list[int] = []

    async def test(inbox: Inbox) -> None:
        inbox.put(message(1))
        await inbox.take(1, "t")
        waiting = asyncio.create_task(inbox.take(2, "t"))
        await asyncio.sleep(0)
        inbox.put(message(2))
        await waiting
        inbox.put(message(3))
        given_back = asyncio.create_task(inbox.take(3, "t"))
        await asyncio.sleep(0)
        given_back.cancel()
        await asyncio.gather(given_back, return_exceptions=True)
        assert inbox.mailbox.queued_bytes(3) == 10

    with_inbox(test, room.append)
    assert room == [1]


def test_of_one_death_one_of_those_who_wait_for_anybody_is_told() -> None:
    async def test(inbox: Inbox) -> list[Any]:
        waiting = [asyncio.create_task(inbox.take(ANY, "t")) for _ in range(3)]
        await asyncio.sleep(0)
        inbox.lose(2, "died")
        return await outcomes(*waiting)

    assert with_inbox(test) == ["lost 2", "waits", "waits"]


def test_of_one_death_one_of_those_who_come_later_is_told() -> None:
    async def test(inbox: Inbox) -> list[Any]:
        inbox.lose(2, "died")
        return await outcomes(*[asyncio.create_task(inbox.take(ANY, "t")) for _ in range(3)])

    assert with_inbox(test) == ["lost 2", "waits", "waits"]


def test_a_loss_that_a_cancelled_recv_was_to_tell_is_told_by_another_that_waits() -> None:
    async def test(inbox: Inbox) -> list[Any]:
        first, second = (asyncio.create_task(inbox.take(ANY, "t")) for _ in range(2))
        await asyncio.sleep(0)
        inbox.lose(2, "died")
        first.cancel()
        return await outcomes(first, second)

    assert with_inbox(test) == ["cancelled", "lost 2"]


def test_a_good_end_is_told_to_whoever_waits_for_that_peer_alone() -> None:
    async def test(inbox: Inbox) -> list[Any]:
        waiting = [asyncio.create_task(inbox.take(source, "t")) for source in (1, 2, ANY)]
        await asyncio.sleep(0)
        assert inbox.lose(2, ENDED)
        assert not inbox.lose(2, "died later")
        assert (inbox.peers, inbox.died(2)) == ((1, 3), False)
        return await outcomes(*waiting)

    assert with_inbox(test) == ["waits", "lost 2", "waits"]


def test_when_nobody_is_left_every_recv_from_anybody_is_told() -> None:
    async def test(inbox: Inbox) -> list[Any]:
        waiting = [asyncio.create_task(inbox.take(ANY, "t")) for _ in range(2)]
        await asyncio.sleep(0)
        for rank in (1, 2, 3):
            inbox.lose(rank, ENDED)
        return await outcomes(*waiting, asyncio.create_task(inbox.take(ANY, "t")))

    assert with_inbox(test) == ["lost 3", "lost 3", "lost 3"]


def test_what_arrived_before_a_loss_is_received_after_it() -> None:
    async def test(inbox: Inbox) -> list[Any]:
        inbox.put(message(2, number=7))
        inbox.lose(2, "died")
        return await outcomes(*[asyncio.create_task(inbox.take(2, "t")) for _ in range(2)])

    assert with_inbox(test) == [7, "lost 2"]


def test_a_receiver_failed_from_outside_is_forgotten() -> None:
    async def test(inbox: Inbox) -> list[Any]:
        handed: list[asyncio.Future[Message]] = []
        first = asyncio.create_task(inbox.take(1, "t", handed.append))
        await asyncio.sleep(0)
        handed[0].set_exception(PeerLost(3))
        await asyncio.sleep(0)
        second = asyncio.create_task(inbox.take(1, "t"))
        await asyncio.sleep(0)
        inbox.put(message(1, number=5))
        return await outcomes(first, second)

    assert with_inbox(test) == ["lost 3", 5]


def test_a_closed_inbox_drops_what_is_there_and_what_comes() -> None:
    async def test(inbox: Inbox) -> None:
        inbox.put(message(1))
        inbox.put(message(2))
        holding = asyncio.create_task(inbox.take(2, "t"))
        await asyncio.sleep(0)
        inbox.close()
        holding.cancel()
        inbox.put(message(1))
        await asyncio.gather(holding, return_exceptions=True)
        assert [inbox.mailbox.queued_bytes(rank) for rank in (1, 2)] == [0, 0]

    with_inbox(test)


@pytest.mark.parametrize("rank", [0, -1, SIZE])
def test_a_rank_that_is_no_peer_is_refused(rank: int) -> None:
    with pytest.raises(ValueError, match="0 to 3 except 0"):
        with_inbox(lambda inbox: inbox.take(rank, "t"))


STEPS = st.lists(st.sampled_from(["put", "take", "cancel", "turn"]), max_size=40)


@given(STEPS)
def test_whoever_is_cancelled_no_message_is_lost_or_repeated_or_overtaken(steps: list[str]) -> None:
    async def test(inbox: Inbox) -> tuple[int, list[int]]:
        puts, tasks = 0, []
        for step in steps:
            if step == "put":
                inbox.put(message(1, number=puts))
                puts += 1
            elif step == "take":
                tasks.append(asyncio.create_task(inbox.take(ANY, "t")))
            elif step == "cancel" and tasks:
                tasks[len(tasks) // 2].cancel()
            else:
                await asyncio.sleep(0)
        got = [told for told in await outcomes(*tasks) if isinstance(told, int)]
        rest = []
        while (left := inbox.mailbox.take(ANY, ANY)) is not None:
            rest.append(left["number"])
        assert rest == sorted(rest), f"out of order: {rest}"
        return puts, got + rest

    puts, seen = with_inbox(test)
    assert sorted(seen) == list(range(puts))


def test_peers_are_those_that_are_not_lost_and_come_back_when_found() -> None:
    async def test(inbox: Inbox) -> None:
        assert inbox.peers == (1, 2, 3)
        inbox.lose(2, "crashed")
        assert inbox.peers == (1, 3)
        inbox.misses_from_the_start(3, "absent")
        assert inbox.peers == (1,)
        inbox.found(2)
        assert inbox.peers == (1, 2)
        assert inbox.peers is inbox.peers, "a barrier sees by the object whether anything has changed"

    with_inbox(test)


def test_a_loss_is_raised_after_what_came_before_it_and_before_what_came_later() -> None:
    async def test(inbox: Inbox) -> list[Any]:
        inbox.put(message(2, number=1))
        inbox.lose(1, "dead")
        inbox.put(message(2, number=2))
        inbox.put(message(3, "u", number=3))
        takes = [inbox.take(2, "t"), inbox.take(ANY, "u"), inbox.take(ANY, "t"), inbox.take(ANY, ANY)]
        return [await outcomes(asyncio.create_task(take)) for take in takes]

    # The first names its source, and gets the first message of that; "u" came after the loss, and is there afterwards.
    assert with_inbox(test) == [[1], ["lost 1"], [2], [3]]


def test_a_loss_whose_recv_was_cancelled_is_raised_before_later_messages() -> None:
    async def test(inbox: Inbox) -> list[Any]:
        waiting = asyncio.create_task(inbox.take(ANY, "t"))
        await asyncio.sleep(0)
        inbox.lose(1, "dead")
        waiting.cancel()  # it has been failed, and does not hear of it
        inbox.put(message(2, number=2))
        return [await outcomes(waiting), await outcomes(asyncio.create_task(inbox.take(ANY, "t")))]

    assert with_inbox(test) == [["cancelled"], ["lost 1"]]
