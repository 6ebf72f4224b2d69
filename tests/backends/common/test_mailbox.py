"""The mailbox is pure: every case is a list of deliveries and takes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from simcluster_backends.common.mailbox import Mailbox

from simcluster.payload import Message, Payload
from simcluster.transport import ANY, OWN_TAGS


def message(source: int, tag: str, number: int = 0, size: int = 10) -> Message:
    return Message(source, tag, Payload((), {"number": number}), size)


def test_the_first_receiver_that_accepts_a_message_gets_it() -> None:
    box: Mailbox[str] = Mailbox()
    box.wait(2, "a", "other source")
    box.wait(1, "b", "other tag")
    box.wait(ANY, "a", "first")
    box.wait(1, "a", "second")
    assert [box.deliver(message(1, "a")), box.deliver(message(1, "a"))] == ["first", "second"]
    assert box.describe() == ["recv(source=2, tag='a')", "recv(source=1, tag='b')"]


def test_a_restored_message_is_the_next_of_its_kind() -> None:
    box: Mailbox[str] = Mailbox()
    for number in range(3):
        box.deliver(message(1, "a", number))
    first = box.take(1, "a")
    assert first is not None
    assert box.restore(first) is None
    assert [box.take(ANY, ANY) for _ in range(3)] == [message(1, "a", number) for number in range(3)]


def test_messages_given_back_in_one_turn_keep_their_order() -> None:
    box: Mailbox[str] = Mailbox()
    matched = [message(1, "a", number) for number in range(3)]
    for receiver, item in zip("xyz", matched, strict=True):
        box.wait(1, "a", receiver)
        assert box.deliver(item) == receiver
    box.deliver(message(1, "a", 3))
    for item in (matched[1], matched[0], matched[2]):
        assert box.restore(item) is None
    numbers = [taken["number"] for _ in range(4) if (taken := box.take(1, "a")) is not None]
    assert numbers == [0, 1, 2, 3]


def test_a_restored_message_goes_to_a_receiver_that_waits() -> None:
    box: Mailbox[str] = Mailbox()
    box.wait(1, "a", "next")
    assert box.restore(message(1, "a")) == "next"
    assert box.take(1, "a") is None


def test_queued_bytes_count_what_nobody_received() -> None:
    box: Mailbox[str] = Mailbox()
    box.deliver(message(1, "a", size=100))
    box.deliver(message(1, "b", size=20))
    box.deliver(message(2, "a", size=3))
    assert [box.queued_bytes(source) for source in (0, 1, 2)] == [0, 120, 3]
    box.take(1, "a")
    assert box.queued_bytes(1) == 20


def test_waiting_for_a_lost_peer_leaves_the_others_alone() -> None:
    box: Mailbox[str] = Mailbox()
    box.wait(1, "a", "lost")
    box.wait(ANY, "a", "any")
    box.wait(2, "a", "kept")
    assert box.waiting_for(1) == ["lost"]
    assert box.first_waiting_for_any() == "any"
    assert box.first_waiting_for_any() is None
    assert box.deliver(message(2, "a")) == "kept"


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from("ab"), st.booleans()), max_size=60))
def test_every_message_is_matched_once_and_in_order(events: list[tuple[int, str, bool]]) -> None:
    """Whatever the mix of receivers and messages: none is lost, none doubled, and each (source, tag) is in order."""
    box: Mailbox[list[Message]] = Mailbox()
    got: list[Message] = []
    sent = 0
    for source, tag, is_message in events:
        if is_message:
            item = message(source, tag, sent)
            sent += 1
            if box.deliver(item) is not None:
                got.append(item)
        else:
            taken = box.take(source, tag)
            if taken is None:
                box.wait(source, tag, [])
            else:
                got.append(taken)
    while (left := box.take(ANY, ANY)) is not None:
        got.append(left)
    assert sorted(item["number"] for item in got) == list(range(sent))
    for key in {(item.source, item.tag) for item in got}:
        numbers = [item["number"] for item in got if (item.source, item.tag) == key]
        assert numbers == sorted(numbers)


def test_what_the_library_listens_for_by_itself_is_no_wait_of_an_algorithm() -> None:
    box: Mailbox[str] = Mailbox()
    box.wait(ANY, f"{OWN_TAGS}regroup", "library")
    assert box.describe() == []
    box.wait(1, "gradients", "algorithm")
    assert box.describe() == ["recv(source=1, tag='gradients')"]
    box.wait(2, ANY, "algorithm")
    assert len(box.describe()) == 2
