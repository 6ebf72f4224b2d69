"""Bytes that a peer with the key may send after its handshake to do harm, by kind and seed.

This module opens no socket.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec
import torch
from simcluster_backends.sockets.wire.frame import MORE, SHARED, FrameKind, as_octets, crc32c, sealed
from simcluster_backends.sockets.wire.outgoing import OutgoingFrame, acknowledgement, data_frame, offer

from simcluster.payload import DTYPES, Payload, encode_header
from tools.hostile.inputs import an_integer, resealed, wire

HEADER = encode_header("t", Payload((torch.zeros(4),), {"step": 1}))
"""The header of a message with a body of 16 bytes."""


def frames(outgoing: OutgoingFrame) -> list[bytes]:
    return [bytes(chunk) for chunk in outgoing.chunks(0)]


def whole_data(chance: random.Random) -> bytes:
    """Return a correct message, for `mutated` to damage."""
    dtype = chance.choice(list(DTYPES.values()))
    tensors = tuple(torch.zeros(chance.choice(((), (3,), (2, 2), (0, 5))), dtype=dtype) for _ in range(2))
    values: dict[str, int | float | str | None] = {
        "step": chance.randrange(9),
        "text": "ü" * chance.randrange(9),
        "none": None,
        "x": 0.5,
    }
    payload = Payload(tensors[: chance.randrange(3)], values)
    return b"".join(frames(data_frame(f"gradients/{chance.randrange(9)}", payload)))


def wrong_data(chance: random.Random) -> bytes:
    """Return a message with a header of impossible tensors, or one that does not match the body."""
    shapes: tuple[list[object], ...] = ([4], [2**31], [-1], [2**31 - 1] * 4, [1] * 99, [2**64 - 1, 0], ["4"], [])
    tensor = [chance.choice(("float32", "float32", "float128", "", "ü" * 99)), chance.choice(shapes)]
    header: list[object] = [chance.choice(("t", "", "\x00" * 99, 7)), {"a": an_integer(chance)}, [tensor]]
    # Most headers are complete; some lack parts.
    encoded = msgspec.msgpack.encode(header[: chance.choice((3, 3, 3, 2, 0))])
    data = wire(FrameKind.DATA, encoded, bytes(chance.choice((0, 16, 16, 17, 999))))
    return resealed(data, flags=MORE) if chance.random() < 0.3 else data


def wrong_lengths(chance: random.Random) -> bytes:
    """Return a preamble that announces more bytes than follow, or more than its kind allows."""
    kind = chance.choice(
        (FrameKind.DATA, FrameKind.CONTROL, FrameKind.GOODBYE, FrameKind.PART, FrameKind.ACK, FrameKind.OFFER)
    )
    header_bytes = chance.choice((0, 5, 2**16, 2**16 + 1, 2**32 - 1))
    fields = {"header_len": header_bytes, "body_len": chance.choice((0, 1, 2**26 + 1, 2**63, 2**64 - 1))}
    return resealed(sealed(kind, b"", 0), **fields) + chance.randbytes(chance.choice((0, 300)))


def wrong_parts(chance: random.Random) -> bytes:
    """Return a message in parts: a part is missing, redundant, too long, misplaced or changed."""
    body = chance.randbytes(16)
    first = sealed(FrameKind.DATA, HEADER, 0, 8, crc32c(body[:8]), MORE) + body[:8]
    second = sealed(FrameKind.PART, b"", 1, 8, crc32c(body)) + body[8:]
    third = sealed(FrameKind.PART, b"", 2, 8, crc32c(body)) + body[8:]
    return chance.choice(
        (
            first + second,
            first,
            second,
            first + first,
            first + second + third,
            first + wire(FrameKind.CONTROL, body=b"\x91\xa4beat", seq=1),
            first + resealed(second, flags=MORE),
            first + resealed(second, seq=2),
            first + resealed(second, header_len=8),
            first + second[:-1] + b"x",
            first + sealed(FrameKind.PART, b"", 1, 0, 0, MORE) * 2,
            first + sealed(FrameKind.PART, b"", 1, 9, 0) + bytes(9),
        )
    )


def wrong_order(chance: random.Random) -> bytes:
    """Return complete frames in a wrong order, with wrong numbers, or with invalid fields."""
    goodbye = wire(FrameKind.GOODBYE)
    beat = wire(FrameKind.CONTROL, body=b"\x91\xa4beat")
    return chance.choice(
        (
            beat + beat,
            wire(FrameKind.CONTROL, body=b"\x91\xa4beat", seq=abs(an_integer(chance)) % 2**64),
            goodbye + wire(FrameKind.HANDSHAKE, b"\x91\x03", seq=1),
            resealed(goodbye, kind=chance.choice((0, 8, 255))),
            resealed(goodbye, flags=chance.choice((MORE, SHARED, 2**15))),
            resealed(goodbye, reserved=1),
            goodbye[:20] + bytes(20),
            sealed(FrameKind.GOODBYE, b"x", 0) + b"y",
            acknowledgement(2**64 - 1) + offer(chance.randbytes(99)),
            resealed(acknowledgement(0), header_len=9) + bytes(9),
        )
    )


def wrong_slots(chance: random.Random) -> bytes:
    """Return a message with its body in shared memory, mostly in slots of invalid lengths."""
    lengths = chance.choice(((0,), (17,), (2**32 - 1,), (8, 9), (8, 8), (8,)))
    encoded = b"".join(length.to_bytes(4, "little") for length in lengths)
    return sealed(FrameKind.DATA, HEADER, 0, 16, 0, SHARED) + encoded


def control(chance: random.Random) -> bytes:
    """Return a message of the control lane with some values replaced by nonsense."""
    message: list[Any] = chance.choice(
        (
            ["job", 0, ["a", "b"], 1, "{}", "p", b"r" * 16, 1, 2, 0.5, 5.0, 9.0, None, [[[0.0, 1.0], 2.0]], []],
            ["addresses", [["127.0.0.1", 1]], {1: "gone"}, 2],
            ["go", 0.5],
            ["beat"],
            ["gone", 1, "lost", 0],
            ["leave", 1.0],
            ["stop", "enough"],
            ["begin", b"x" * 99, True],
            ["listening", "127.0.0.1", 1],
            ["status", 1, 2, 3, ["recv"], 4, {1: [1, 2]}, 5, False, 0.0, "a.py:1", {}, {"cpu": 0.5}, [], []],
            ["rows", [], [], []],
            ["ordered", b"x"],
            ["piece", b"x" * 99],
            ["shard", b"x", False],
            ["outcome", {}, None],
        )
    )
    odd: tuple[object, ...] = (None, -1, 2**64 - 1, float("nan"), "x" * 999, "\x00", b"", [], [[]], {}, {"a": {}}, True)
    for _ in range(chance.choice((0, 1, 1, 3))):
        message[chance.randrange(len(message))] = chance.choice(odd)
    encoded = msgspec.msgpack.encode(message)
    nested = chance.choice((b"\x91", b"\x81\xa1a", b"\xdd\xff\xff\xff\xff", b"\xdb\x7f\xff\xff\xff")) * 9999
    body = chance.choice((encoded, encoded, encoded, encoded[:-1], nested))
    return b"".join(frames(OutgoingFrame(FrameKind.CONTROL, b"", [as_octets(body)])))


PEERS: dict[str, Callable[[random.Random], bytes]] = {
    "data": whole_data,
    "announced": wrong_data,
    "lengths": wrong_lengths,
    "parts": wrong_parts,
    "order": wrong_order,
    "slots": wrong_slots,
    "control": control,
}
