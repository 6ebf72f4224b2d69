"""Two versions of the protocol refuse each other by name, and no change of the wire keeps the version."""

from __future__ import annotations

import asyncio
import hashlib
from typing import get_args

import pytest
from simcluster_backends.sockets.net.listener import connect
from simcluster_backends.sockets.net.shared_memory import MemoryOffer
from simcluster_backends.sockets.wire.frame import MORE, SHARED, FrameKind, Preamble
from simcluster_backends.sockets.wire.handshake import Handshake, HandshakeMessage, PeerIdentity
from simcluster_backends.sockets.wire.messages import FromLauncher, FromNode, HoldOrder, ResetOrder
from simcluster_backends.sockets.wire.outgoing import OutgoingFrame
from simcluster_backends.sockets.wire.protocol import PROTOCOL_VERSION

from simcluster.errors import HandshakeRefused
from simcluster.payload import MessageHeader, TensorHeader
from simcluster.runs.record import Metric, NodeRecord, Span

WIRE = {
    1: "not recorded",
    2: "bfcb67b5fbe80cf0",
    3: "b675145a54c39bba",
    4: "e6b2836d199f0dd6",
    5: "2dfa104e67314d7a",
    6: "d1fbf608c9559447",
    7: "06788f0a10f39727",
    8: "1f205450aa768cc7",
    9: "1eb14d29ab8b5d05",
    10: "77e90119e47bb0f7",
    11: "1bedd1fbb723f7c6",
}
"""A digest of everything that crosses the wire, by version; names of classes count, which do not cross."""


def test_a_change_of_the_wire_raises_the_version_of_the_protocol() -> None:
    parts = (Preamble, *get_args(HandshakeMessage), *get_args(FromLauncher), *get_args(FromNode))
    parts += (HoldOrder, ResetOrder, MessageHeader, TensorHeader, NodeRecord, Metric, Span)
    layout = [f"{part.__name__} {list(part.__annotations__.items())}" for part in parts]
    layout.append(f"{[(kind.name, kind.value) for kind in FrameKind]} {MORE} {SHARED} {MemoryOffer.__annotations__}")
    found = hashlib.sha256("\n".join(layout).encode()).hexdigest()[:16]
    assert found == WIRE[PROTOCOL_VERSION], "raise PROTOCOL_VERSION, and add this digest under the new one"


@pytest.mark.parametrize("theirs", [1, PROTOCOL_VERSION + 1, 255])
def test_a_node_refuses_an_acceptor_of_another_version_and_names_both(theirs: int) -> None:
    async def main() -> bytes:
        heard: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            answer = bytearray(b"".join(map(bytes, OutgoingFrame(FrameKind.HANDSHAKE, b"x").chunks(0))))
            answer[4] = theirs  # right after the magic
            writer.write(answer)
            heard.set_result(await reader.read())
            writer.close()

        async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(HandshakeRefused, match=words):
                await connect("127.0.0.1", port, shake, on_open=lambda connection: None, timeout_s=5.0)
            return await heard

    def shake() -> Handshake:
        return Handshake(b"k" * 32, PeerIdentity("data", "b"), accepts=False)

    words = f"version {theirs} of the protocol, this side version {PROTOCOL_VERSION}: install the same simcluster"
    assert words.encode() in asyncio.run(main()), "the peer is sent the reason"
