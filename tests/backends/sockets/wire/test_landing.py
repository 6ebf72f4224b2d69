"""Tensors are received into places that were named before, and whatever happens nobody's memory is written to later."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
import torch
from simcluster_backends.sockets.node.transport import SocketTransport
from simcluster_backends.sockets.wire.frame import FrameKind, Landing
from simcluster_backends.sockets.wire.outgoing import OutgoingFrame, data_frame
from simcluster_backends.sockets.wire.reader import READ_AHEAD_BYTES
from torch import Tensor

from simcluster.collectives import ring_all_reduce
from simcluster.collectives.ring import LEAST_BYTES
from simcluster.payload import Message, Payload, lend, pack
from simcluster.shortcuts import GiveBack, Shortcuts
from simcluster.transport import Transport
from tests.support.clusters import run, star
from tests.support.socket_cluster import run_bodies
from tools.hostile.inputs import Feeding

LONG = READ_AHEAD_BYTES  # numbers of 4 bytes: four times what is read ahead


def wire(*contents: Payload, tag: str = "t") -> bytes:
    frames = [data_frame(tag, content) for content in contents]
    return b"".join(bytes(chunk) for seq, frame in enumerate(frames) for chunk in frame.chunks(seq))


def opened() -> Feeding:
    return Feeding(is_open=True)


def landed(reader: Feeding, place: Tensor, tag: str = "t") -> Landing:
    landing = reader.land(tag, place)
    assert landing is not None
    return landing


# the reader


@pytest.mark.parametrize("numbers", [3, LONG])
def test_a_message_comes_to_the_place_that_was_named_for_its_tag(numbers: int) -> None:
    reader, place = opened(), torch.zeros(numbers)
    landed(reader, place)
    first, other = torch.rand(numbers), torch.rand(numbers)
    got = reader.feed(wire(pack(first), pack(other)))
    assert got[0].tensors[0] is place
    assert torch.equal(place, first)
    assert got[1].tensors[0] is not place, "a place is for one message"


def test_places_under_one_tag_are_filled_in_the_order_in_which_they_were_named() -> None:
    reader, places = opened(), [torch.zeros(5), torch.zeros(5)]
    for place in places:
        landed(reader, place)
    reader.feed(wire(pack(torch.full((5,), 1.0)), pack(torch.full((5,), 2.0))))
    assert [place[0].item() for place in places] == [1.0, 2.0]


@pytest.mark.parametrize(
    "content",
    [pack(torch.ones(4)), pack(torch.ones(5, dtype=torch.int32)), pack(torch.ones(5), torch.ones(5)), pack(step=1)],
    ids=["shorter", "another dtype", "two tensors", "none"],
)
def test_a_message_that_does_not_fit_its_place_comes_elsewhere_and_the_next_one_too(content: Payload) -> None:
    reader, place = opened(), torch.zeros(5)
    landed(reader, place)
    got = reader.feed(wire(content, pack(torch.ones(5))))
    assert all(tensor is not place for frame in got for tensor in frame.tensors)
    assert torch.equal(place, torch.zeros(5))


def test_a_place_named_too_late_is_refused() -> None:
    reader, sent = opened(), wire(pack(torch.ones(LONG)))
    reader.feed(sent[:1000])
    assert reader.land("t", torch.zeros(LONG)) is None
    assert reader.land("other", torch.zeros(LONG)) is not None


@pytest.mark.parametrize("cut", [0, 60, 1000, 3 * READ_AHEAD_BYTES])
def test_a_place_that_is_taken_back_is_not_written_to_again(cut: int) -> None:
    reader, place, sent = opened(), torch.zeros(LONG), torch.rand(LONG)
    landing, data = landed(reader, place), wire(pack(sent))
    assert reader.feed(data[:cut]) == []
    reader.take_back(landing)
    place.fill_(-1.0)
    (frame,) = reader.feed(data[cut:])
    assert torch.equal(frame.tensors[0], sent), "and the message is whole"
    assert torch.equal(place, torch.full((LONG,), -1.0))


def test_a_message_that_nobody_has_received_outlives_its_place() -> None:
    reader, place, sent = opened(), torch.zeros(LONG), torch.rand(LONG)
    landing = landed(reader, place)
    (frame,) = reader.feed(wire(pack(sent)))
    landing.message = Message(0, "t", Payload(frame.tensors), frame.size_bytes)
    reader.take_back(landing)
    place.fill_(-1.0)
    assert torch.equal(landing.message.tensor, sent)


# what is sent from where it is


@pytest.mark.parametrize("given_out", range(5))
def test_what_is_kept_leaves_as_it_was(given_out: int) -> None:
    tensors = [torch.rand(150_000), torch.rand(10), torch.rand(100_000)]
    # Chunks: what is before; 524,288 bytes; 75,712, and the second one's 40; the third one's 400,000.
    content = pack(*tensors)
    expected, frame = wire(content), data_frame("t", content)
    chunks, sent = frame.chunks(0), b""
    for _ in range(given_out):
        sent += bytes(next(chunks))
    frame.keep()
    for tensor in tensors:
        tensor.fill_(-1.0)
    assert sent + b"".join(map(bytes, chunks)) == expected


def test_a_frame_of_bytes_is_its_own() -> None:
    frame = OutgoingFrame(FrameKind.DATA, b"x")
    assert frame.kept


@pytest.mark.parametrize("uvloop", [None, False], ids=["the loop there is", "asyncios own"])
def test_lent_tensors_are_the_senders_again_once_it_has_given_up(uvloop: bool | None) -> None:
    full, given_up = asyncio.Event(), asyncio.Event()
    ones = torch.ones(12_000_000)  # more than two kernels' buffers hold

    async def sender(node: Transport) -> None:
        lent = ones.clone()
        await node.send(1, "first", None)
        await full.wait()
        sending = asyncio.create_task(node.send(1, "w", lend(lent)))
        await asyncio.sleep(0.01)
        assert not sending.done()
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        lent.fill_(-1.0)
        given_up.set()

    async def receiver(node: SocketTransport) -> bool:
        while not node._inbox.mailbox.queued_bytes(0):
            await asyncio.sleep(0)
        full.set()  # so nothing more is read
        await given_up.wait()
        await node.recv(0, "first")
        return torch.equal((await node.recv(0, "w")).tensor, ones)

    assert run_bodies([sender, receiver], inbox_bytes=1, uvloop=uvloop) == [None, True]


# rings over real sockets


async def _sum(node: Transport, numbers: int, tag: str = "sum") -> Tensor:
    own = torch.rand(numbers, generator=torch.Generator().manual_seed(node.rank))
    before = own.clone()
    total = await ring_all_reduce(node, own, tag)
    assert torch.equal(own, before), "the vector is left alone"
    return total


@pytest.mark.parametrize("size", [2, 3])
def test_a_ring_of_long_chunks_has_the_bits_of_the_simulator_under_one_tag_again_and_again(size: int) -> None:
    numbers = size * LONG + 1  # chunks of unequal length, all of them large enough to land

    async def thrice(node: Transport) -> list[Tensor]:
        return [await _sum(node, numbers + extra) for extra in (0, 1, 0)]

    real = run_bodies([thrice] * size)
    simulated = run(star(size), *[thrice] * size)
    for mine, theirs in zip(simulated, real, strict=True):
        assert not isinstance(theirs, BaseException), theirs
        assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))


def test_a_ring_lands_its_chunks_in_the_result() -> None:
    places: list[int] = []

    async def body(node: Transport) -> Tensor:
        fast = node.fast
        assert fast is not None
        assert fast.land is not None
        land = fast.land

        def noted(source: int, tag: str, place: Tensor) -> GiveBack | None:
            places.append(place.untyped_storage().data_ptr())
            return land(source, tag, place)

        if node.rank == 0:
            vars(node)["fast"] = replace(fast, land=noted)
        return await _sum(node, 2 * LONG)

    totals = run_bodies([body] * 2)
    assert places == [totals[0].untyped_storage().data_ptr()] * 2


def test_after_a_ring_that_was_cancelled_nothing_is_lost_and_nothing_written() -> None:
    numbers = 2 * LONG

    async def patient(node: Transport) -> None:
        """Sends what rank 0 waits for only when it has given up."""
        await node.recv(0, "given up")
        await node.send(0, "sum/scatter0", torch.full((LONG,), 7.0))

    async def impatient(node: Transport) -> Tensor:
        own = torch.ones(numbers)
        ring = asyncio.create_task(ring_all_reduce(node, own, "sum"))
        await asyncio.sleep(0.01)
        ring.cancel()
        await asyncio.gather(ring, return_exceptions=True)
        assert ring.cancelled()
        own.fill_(-1.0)  # it is the caller's again, even if not all of it has left
        await node.send(1, "given up", None)
        message = await node.recv(1, "sum/scatter0")
        assert torch.equal(own, torch.full((numbers,), -1.0))
        return message.tensor

    got = run_bodies([impatient, patient])[0]
    assert isinstance(got, Tensor), got
    assert torch.equal(got, torch.full((LONG,), 7.0))


def test_unequal_vectors_are_named() -> None:
    async def body(node: Transport) -> str:
        with pytest.raises(ValueError, match="expected vectors of one length") as refused:
            await ring_all_reduce(node, torch.ones(4 + 2 * node.rank), "sum")
        return str(refused.value)

    first = run(star(2), body, body)[0]
    # Rank 0 receives chunk 1: 2 of its own 4 numbers, 3 of rank 1's 6.
    assert first == "rank 1 has sent 3 numbers for 2 here under 'sum/scatter0'; expected vectors of one length"


def test_short_chunks_are_not_worth_a_place() -> None:
    async def body(node: Transport) -> list[str]:
        asked: list[str] = []

        def noted(source: int, tag: str, place: Tensor) -> None:
            asked.append(tag)

        vars(node)["fast"] = Shortcuts(land=noted)
        for tag, numbers in (("short", LEAST_BYTES // 4 - 1), ("long", LEAST_BYTES // 4)):
            await ring_all_reduce(node, torch.zeros(2 * numbers), tag)
        return asked

    assert run_bodies([body] * 2) == [["long/scatter0", "long/gather0"]] * 2
