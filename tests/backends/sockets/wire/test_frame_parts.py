"""Messages larger than a frame may be: in parts, whole and equal at the other end, and never more than it can need."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import torch
from simcluster_backends.sockets.wire.frame import MORE, PREAMBLE_BYTES, Frame, FrameKind, Preamble
from simcluster_backends.sockets.wire.outgoing import OutgoingFrame, data_frame
from simcluster_backends.sockets.wire.reader import FrameLimits

from simcluster.errors import ProtocolError
from simcluster.payload import Payload, pack, sizes_of
from tests.backends.sockets.wire.test_framing import reseal
from tools.hostile.inputs import Feeding

LIMIT = 200_000


def sent(*frames: OutgoingFrame) -> bytes:
    seq, found = 0, b""
    for frame in frames:
        found += b"".join(map(bytes, frame.chunks(seq)))
        seq += frame.count
    return found


def reader(part: int = LIMIT, message: int = 10 * LIMIT) -> Feeding:
    return Feeding(FrameLimits(body_bytes=part, message_bytes=message), is_open=True)


def equal(frame: Frame, content: Any) -> bool:
    return all(map(torch.equal, frame.tensors, content.tensors)) and len(frame.tensors) == len(content.tensors)


@pytest.mark.parametrize("pieces", [1, 7, 65_536, 10**9])
@pytest.mark.parametrize(
    "shapes", [[(150_000,)], [(150_001,), (0,), (1,)], [(50_000,), (50_000,), (50_000,), (3,)], [(1,)] * 50]
)
def test_a_message_of_three_times_the_limit_arrives_whole_and_equal(shapes: list[tuple[int, ...]], pieces: int) -> None:
    content = pack(*(torch.randn(shape) for shape in shapes), number=7)
    before, after = data_frame("t", pack(torch.ones(3))), data_frame("t", pack(value=1))
    large = data_frame("large", content, LIMIT)
    assert large.count == -(-content_bytes(content) // LIMIT)
    stream, found = sent(before, large, after), []
    one, step = reader(), max(pieces, len(stream) // 5000)
    for start in range(0, len(stream), step):
        found += one.feed(stream[start : start + step])
    assert [frame.message.tag for frame in found if frame.message] == ["t", "large", "t"]
    assert equal(found[1], content)
    assert found[1].size_bytes == large.size_bytes == sum(sizes_of("large", content)), "as on every backend"
    assert large.wire_bytes == large.size_bytes + (large.count - 1) * PREAMBLE_BYTES
    assert one.between_frames


def content_bytes(content: Payload) -> int:
    return sum(tensor.nbytes for tensor in content.tensors)


def test_the_checksum_of_a_message_does_not_depend_on_its_parts() -> None:
    content = pack(torch.randn(100_000))
    (whole,) = reader(10**9).feed(sent(data_frame("t", content, 10**9)))
    (parts,) = reader().feed(sent(data_frame("t", content, 1000)))
    assert (whole.header, whole.body_crc) == (parts.header, parts.body_crc)


def test_parts_are_received_into_the_place_that_was_named_and_moved_if_that_is_taken_back() -> None:
    content = torch.randn(150_000)
    stream = sent(data_frame("t", pack(content), LIMIT), data_frame("t", pack(content), LIMIT))
    one, place = reader(), torch.zeros(150_000)
    one.land("t", place)
    landing = one.land("t", taken := torch.zeros(150_000))
    assert landing is not None
    middle = len(stream) * 3 // 4
    (first,) = one.feed(stream[:middle])
    assert first.tensors[0].data_ptr() == place.data_ptr()
    one.take_back(landing)
    begun = taken.clone()
    (second,) = one.feed(stream[middle:])
    assert torch.equal(second.tensors[0], content)
    assert torch.equal(taken, begun), "its owner has it"


# peers that mean harm


def no_memory(*_: Any) -> Any:
    raise AssertionError("memory was taken")


def test_a_peer_that_announces_more_than_a_node_can_need_is_refused_before_memory_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    message = sent(data_frame("t", pack(torch.zeros(1_000_000)), LIMIT))[:1000]
    frame = sent(data_frame("t", pack(torch.zeros(100_000)), 10**9))[:1000]
    monkeypatch.setattr(torch, "empty", no_memory)
    with pytest.raises(ProtocolError, match="a message of 4000000 bytes; at most 2000000"):
        reader().feed(message)
    with pytest.raises(ProtocolError, match=f"a body of 400000 bytes; at most {LIMIT}"):
        reader().feed(frame)


@pytest.mark.parametrize(
    ("stream", "words"),
    [
        (sent(OutgoingFrame(FrameKind.PART)), "a part without message"),
        (reseal(sent(data_frame("t", pack(value=1))), flags=MORE), "tensors of 0 bytes in a body of 0"),
        (reseal(sent(data_frame("t", pack(value=1))), flags=2), "flags 2"),
        (reseal(sent(OutgoingFrame(FrameKind.GOODBYE)), flags=MORE), "flags 1"),
    ],
)
def test_parts_that_do_not_fit_are_refused(stream: bytes, words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        reader().feed(stream)


@pytest.mark.parametrize("kind", [FrameKind.GOODBYE, FrameKind.CONTROL, FrameKind.DATA])
def test_nothing_comes_between_the_parts_of_a_message(kind: FrameKind) -> None:
    stream = sent(data_frame("t", pack(torch.zeros(100_000)), LIMIT))
    frames = [LIMIT + Preamble.read(stream[:PREAMBLE_BYTES]).header_len + PREAMBLE_BYTES]
    other = data_frame("u", pack(value=1)) if kind is FrameKind.DATA else OutgoingFrame(kind)
    with pytest.raises(ProtocolError, match="between the parts"):
        reader().feed(stream[: frames[0]] + b"".join(map(bytes, other.chunks(1))))


def test_a_message_without_its_last_part_tears_the_stream() -> None:
    one = reader()
    stream = sent(data_frame("t", pack(torch.zeros(100_000)), LIMIT))
    assert one.feed(stream[: LIMIT + 1000]) == []
    assert not one.between_frames


# between real nodes


def test_nodes_send_each_other_tensors_of_three_times_the_limit() -> None:
    from tests.backends.sockets.node.test_sockets_transport import run

    content = torch.randn(60_000)

    async def body(node: Any) -> tuple[bool, int, int]:
        node._body_limit_bytes = 80_000
        other = 1 - node.rank
        async with asyncio.TaskGroup() as group:
            group.create_task(node.send(other, "t", content))
            message = await node.recv(other, "t")
        return torch.equal(message.tensors[0], content), message.size_bytes, node.recorder.record.sent_to[other][1]

    size = sum(sizes_of("t", Payload((content,))))
    assert run(body, body) == [(True, size, size)] * 2


def test_what_a_receiver_has_no_memory_for_is_not_sent() -> None:
    from tests.backends.sockets.node.test_sockets_transport import run

    async def body(node: Any) -> None:
        other = 1 - node.rank
        node._message_limits = [10**9, 100] if node.rank == 0 else [100, 10**9]
        with pytest.raises(ValueError, match="104 bytes of tensors, at most 100"):
            await node.send(other, "t", torch.zeros(26))
        await node.send(other, "t", torch.zeros(25))
        await node.recv(other, "t")

    run(body, body)
