"""Frames from bytes and back, on every split and every corruption of the bytes; no socket anywhere."""

from __future__ import annotations

import struct
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from simcluster_backends.sockets.wire.frame import (
    BODY_LIMIT_BYTES,
    CHUNK_BYTES,
    HANDSHAKE_LIMIT_BYTES,
    HEADER_LIMIT_BYTES,
    Frame,
    FrameKind,
    OtherVersion,
    Preamble,
    as_octets,
    header_crc,
    octets,
)
from simcluster_backends.sockets.wire.outgoing import OutgoingFrame
from simcluster_backends.sockets.wire.protocol import PROTOCOL_VERSION
from simcluster_backends.sockets.wire.reader import READ_AHEAD_BYTES, FrameLimits
from torch import Tensor

from simcluster.errors import ProtocolError
from simcluster.payload import DTYPES, PREAMBLE_BYTES, Payload, encode_header, pack, sizes_of
from tools.hostile.inputs import Feeding


def opened(**limits: int) -> Feeding:
    return Feeding(FrameLimits(**limits), is_open=True)


def data_frame(tag: str, content: Payload) -> OutgoingFrame:
    return OutgoingFrame(FrameKind.DATA, encode_header(tag, content), [octets(tensor) for tensor in content.tensors])


def wire(*frames: OutgoingFrame) -> bytes:
    """The bytes of *frames*, sent one after the other."""
    return b"".join(bytes(chunk) for seq, frame in enumerate(frames) for chunk in frame.chunks(seq))


def reseal(data: bytes, **fields: Any) -> bytes:
    """The bytes of one frame with some *fields* of its preamble changed, and a checksum that fits again."""
    preamble = Preamble.read(data[:PREAMBLE_BYTES])._replace(**fields)
    header = data[PREAMBLE_BYTES : PREAMBLE_BYTES + preamble.header_len]
    layout = struct.Struct("<4sBBHIQQIII")
    return (
        layout.pack(*preamble._replace(header_crc=header_crc(layout.pack(*preamble), header))) + data[PREAMBLE_BYTES:]
    )


def data_bytes(header: Any, body: bytes = b"", **fields: Any) -> bytes:
    """A DATA frame with any *header*, however wrong."""
    encoded = header if isinstance(header, bytes) else msgspec.msgpack.encode(header)
    return reseal(wire(OutgoingFrame(FrameKind.DATA, encoded, [as_octets(body)])), **fields)


def same(got: Tensor, sent: Tensor) -> bool:
    return got.dtype == sent.dtype and got.shape == sent.shape and bytes(octets(got)) == bytes(octets(sent))


CONTENTS = {
    "nothing": pack(),
    "values": pack(step=-3, loss=0.1, text="grüße", flag=True, none=None),
    "every dtype": pack(*(torch.arange(6).reshape(2, 3).to(dtype) for dtype in DTYPES.values())),
    "odd shapes": pack(torch.tensor(1.5), torch.zeros(0, 4), torch.zeros(1, 1, 1, 1, 1, 1, 1, 1), torch.tensor(True)),
    "only empty": pack(torch.zeros(0), torch.zeros(3, 0)),
}


def test_a_tensor_that_is_not_contiguous_is_sent_as_its_values() -> None:
    # Every second number, rows and columns exchanged, one row repeated.
    sent = [torch.arange(10.0)[::2], torch.rand(3, 4).t(), torch.ones(3).expand(2, 3)]
    (frame,) = opened().feed(wire(data_frame("tag", pack(*sent))))
    assert all(map(torch.equal, frame.tensors, sent))


@pytest.mark.parametrize("name", CONTENTS)
def test_a_message_grown_one_byte_at_a_time_comes_out_once_and_whole(name: str) -> None:
    content, reader = CONTENTS[name], opened()
    data = wire(data_frame("tag", content), OutgoingFrame(FrameKind.GOODBYE))
    frames: list[Frame] = []
    for i in range(len(data)):
        frames += reader.feed(data[i : i + 1])
    assert [frame.kind for frame in frames] == [FrameKind.DATA, FrameKind.GOODBYE]
    message = frames[0].message
    assert message is not None
    assert (message.tag, message.values) == ("tag", dict(content.values))
    assert len(frames[0].tensors) == len(content.tensors)
    assert all(map(same, frames[0].tensors, content.tensors))
    assert frames[0].size_bytes == sum(sizes_of("tag", content))
    assert reader.between_frames


def test_a_large_tensor_is_read_into_its_own_memory() -> None:
    sent = torch.arange(READ_AHEAD_BYTES, dtype=torch.int64)  # 512 KiB
    data, reader = wire(data_frame("w", pack(sent, torch.ones(3)))), opened()
    # The first read brings preamble, header and the beginning; the next goes past the read-ahead.
    first = reader.buffer()
    first[:5000] = data[:5000]
    reader.received(5000)
    assert reader.next_frame() is None
    place = reader.buffer()
    assert len(place) == sent.numel() * 8 - (5000 - PREAMBLE_BYTES - len(encode_header("w", pack(sent, torch.ones(3)))))
    place[:] = data[5000 : 5000 + len(place)]
    reader.received(len(place))
    frames = reader.feed(data[5000 + len(place) :])
    assert len(frames) == 1
    assert torch.equal(frames[0].tensors[0], sent)
    assert octets(frames[0].tensors[0]).ctypes.data + sent.numel() * 8 == torch.frombuffer(
        place, dtype=torch.uint8
    ).data_ptr() + len(place)


def test_a_large_message_survives_every_size_of_read() -> None:
    sent = pack(torch.arange(70_000, dtype=torch.int32), torch.ones(3), torch.arange(30_000))
    data = wire(data_frame("w", sent), data_frame("x", sent))
    for size in (977, 65_536, 65_537, 131_072, len(data)):
        reader, frames = opened(), []
        for start in range(0, len(data), size):
            frames += reader.feed(data[start : start + size])
        assert len(frames) == 2, f"reads of {size} bytes"
        assert all(map(same, frames[1].tensors, sent.tensors))


def test_no_chunk_copies_a_large_tensor() -> None:
    tensor = torch.zeros(1_000_000)
    views = [chunk for chunk in data_frame("w", pack(tensor)).chunks(0) if isinstance(chunk, memoryview)]
    assert sum(len(view) for view in views) > 0.9 * 4_000_000
    first = torch.frombuffer(views[0], dtype=torch.uint8)
    assert first.data_ptr() == tensor.data_ptr()


def test_no_chunk_of_the_stream_is_empty_where_tensors_end_with_chunks() -> None:
    whole, more = torch.zeros(CHUNK_BYTES, dtype=torch.uint8), torch.zeros(2 * CHUNK_BYTES, dtype=torch.uint8)
    content = pack(whole, more, whole, torch.zeros(0), whole)
    chunks = [bytes(chunk) for chunk in data_frame("w", content).chunks(0)]
    assert all(chunks)
    (frame,) = opened().feed(b"".join(chunks))
    assert all(map(same, frame.tensors, content.tensors))


def test_any_changed_byte_is_a_protocol_error_or_awaited_bytes_and_nothing_else() -> None:
    data = wire(data_frame("tag", pack(torch.arange(5), torch.tensor(2.0), step=1)))
    for position in range(len(data)):
        for flip in (0x01, 0x80, 0xFF):
            changed = bytearray(data)
            changed[position] ^= flip
            try:
                frames = opened().feed(bytes(changed))
            except ProtocolError:
                continue
            assert frames == [], f"byte {position} changed by {flip:#x} was not noticed"


def test_after_an_error_a_reader_gives_nothing_more() -> None:
    reader = opened()
    with pytest.raises(ProtocolError, match="not a simcluster peer"):
        reader.feed(b"GET / HTTP/1.1\r\n")
    with pytest.raises(ProtocolError, match="not a simcluster peer"):
        reader.feed(wire(OutgoingFrame(FrameKind.GOODBYE)))


def test_a_torn_frame_is_told_from_an_end_between_frames() -> None:
    data = wire(data_frame("tag", pack(torch.ones(10))))
    for cut in range(1, len(data)):
        reader = opened()
        assert reader.feed(data[:cut]) == []
        assert not reader.between_frames
    reader = opened()
    reader.feed(data)
    assert reader.between_frames


@pytest.mark.parametrize("wrong", [0, 2, 7, 2**63])
def test_a_repeated_or_missing_frame_is_found_by_its_number(wrong: int) -> None:
    frame = OutgoingFrame(FrameKind.GOODBYE)
    reader = opened()
    reader.feed(wire(frame))
    with pytest.raises(ProtocolError, match=f"frame number {wrong}, expected 1"):
        reader.feed(b"".join(map(bytes, frame.chunks(wrong))))


def test_another_version_is_named() -> None:
    theirs, ours = PROTOCOL_VERSION + 1, PROTOCOL_VERSION
    words = f"version {theirs} of the protocol, this side version {ours}: install the same simcluster"
    with pytest.raises(OtherVersion, match=words):
        opened().feed(data_bytes(["t", {}, []], version=theirs))


LIMITS: dict[str, tuple[bytes, str]] = {
    "header too long": (
        data_bytes(["t", {}, []], header_len=HEADER_LIMIT_BYTES + 1),
        "header of 65537 bytes",
    ),
    "body too long": (
        data_bytes(["t", {}, []], body_len=BODY_LIMIT_BYTES + 1),
        f"body of {BODY_LIMIT_BYTES + 1} bytes; at most",
    ),
    "control too long": (data_bytes(b"", kind=FrameKind.CONTROL, body_len=2**40), "body of 1099511627776 bytes"),
    "goodbye with a body": (data_bytes(b"", b"x", kind=FrameKind.GOODBYE), "body of 1 bytes; at most 0"),
    "no such kind": (data_bytes(b"", kind=77), "kind 77"),
    "handshake again": (data_bytes(b"", kind=FrameKind.HANDSHAKE), "after the handshake has ended"),
    "flags": (data_bytes(["t", {}, []], flags=1), "flags 1"),
    "reserved": (data_bytes(["t", {}, []], reserved=1), "reserved 1"),
    "body without tensors": (data_bytes(["t", {}, []], b"xxxx"), "tensors of 0 bytes in a body of 4"),
    "tensors without body": (
        data_bytes(["t", {}, [["float32", [2**30, 2**30]]]]),
        r"tensors of \d+ bytes in a body",
    ),
    "no such dtype": (data_bytes(["t", {}, [["complex64", [1]]]], b"x" * 8), "dtype 'complex64'"),
    "dimensions": (data_bytes(["t", {}, [["int8", [1] * 9]]], b"x"), "9 dimensions"),
    "negative length": (data_bytes(["t", {}, [["int8", [-1, -1]]]], b"x"), r"shape \[-1, -1\]"),
    "huge lengths of nothing": (data_bytes(["t", {}, [["int8", [0, 2**40]]]]), "lengths are 0 to"),
    "overflowing nothing": (
        data_bytes(["t", {}, [["int8", [0, 2**30, 2**30, 2**30]]]]),
        "no memory for a body of 0",
    ),
    "not MessagePack": (data_bytes(b"\xc1\xc1"), "cannot be decoded"),
    "other types": (data_bytes([1, 2, 3]), "cannot be decoded"),
    "not UTF-8": (data_bytes(b"\x93\xa2\xff\xff\x80\x90"), "cannot be decoded"),
    "bytes left over": (data_bytes(msgspec.msgpack.encode(["t", {}, []]) + b"\x00"), "cannot be decoded"),
    "nested too deep": (data_bytes(b"\x93\xa1t" + b"\x81\xa1a" * 20_000), "cannot be decoded"),
}


@pytest.mark.parametrize("name", LIMITS)
def test_a_frame_past_a_limit_is_refused(name: str) -> None:
    data, why = LIMITS[name]
    with pytest.raises(ProtocolError, match=why):
        opened().feed(data)


def test_a_smaller_limit_on_bodies_holds() -> None:
    data = wire(data_frame("t", pack(torch.zeros(26))))  # 104 bytes
    assert len(opened(body_bytes=104).feed(data)) == 1
    with pytest.raises(ProtocolError, match="body of 104 bytes; at most 103"):
        opened(body_bytes=103).feed(data)


def test_before_the_handshake_only_short_handshake_frames_are_read() -> None:
    longest = HANDSHAKE_LIMIT_BYTES - PREAMBLE_BYTES
    assert [f.header for f in Feeding().feed(wire(OutgoingFrame(FrameKind.HANDSHAKE, b"x" * longest)))] == [
        b"x" * longest
    ]
    with pytest.raises(ProtocolError, match="handshake frame of 257 bytes; at most 256"):
        Feeding().feed(wire(OutgoingFrame(FrameKind.HANDSHAKE, b"x" * (longest + 1)))[:PREAMBLE_BYTES])
    for frame in (data_frame("t", pack()), OutgoingFrame(FrameKind.CONTROL), OutgoingFrame(FrameKind.GOODBYE)):
        with pytest.raises(ProtocolError, match="before the handshake has ended"):
            Feeding().feed(wire(frame))


def test_a_header_too_long_to_be_read_is_not_sent() -> None:
    with pytest.raises(ValueError, match="header of 70"):
        data_frame("t" * 70_000, pack())


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400))
def test_no_bytes_raise_anything_but_a_protocol_error(data: bytes) -> None:
    for reader in (opened(), Feeding()):
        try:
            assert reader.feed(data) == [] or len(data) >= PREAMBLE_BYTES
        except ProtocolError:
            continue


@settings(max_examples=300, deadline=None)
@given(
    st.binary(max_size=80),
    st.binary(max_size=40),
    st.sampled_from([FrameKind.DATA, FrameKind.CONTROL, FrameKind.GOODBYE]),
)
def test_no_header_under_a_right_checksum_raises_anything_else(header: bytes, body: bytes, kind: FrameKind) -> None:
    data = reseal(wire(OutgoingFrame(FrameKind.DATA, header, [as_octets(body)])), kind=kind)
    try:
        frames = opened().feed(data)
    except ProtocolError:
        return
    assert len(frames) == 1


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(DTYPES)), st.lists(st.integers(0, 4), max_size=4)),
        min_size=0,
        max_size=5,
    ),
    st.lists(st.integers(1, 300), min_size=1, max_size=20),
)
def test_any_message_in_any_pieces_comes_out_as_it_went_in(
    kinds: list[tuple[str, list[int]]], pieces: list[int]
) -> None:
    content = pack(*(torch.randint(0, 2, shape).to(DTYPES[dtype]) for dtype, shape in kinds))
    data, reader, frames, i = wire(data_frame("t", content)), opened(), [], 0
    while data:
        piece, data = data[: pieces[i % len(pieces)]], data[pieces[i % len(pieces)] :]
        frames += reader.feed(piece)
        i += 1
    assert len(frames) == 1
    assert all(map(same, frames[0].tensors, content.tensors))
