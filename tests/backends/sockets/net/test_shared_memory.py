"""Bodies in memory that two processes share: the same bytes as on the stream, which is used where sharing fails."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from simcluster_backends.sockets.net import shared_memory
from simcluster_backends.sockets.net.send_queue import QueuedFrame, SendQueue
from simcluster_backends.sockets.net.shared_memory import SLOT_BYTES, SLOTS, MemoryOffer, ReceiveSlots, SendSlots
from simcluster_backends.sockets.node.transport import SocketTransport
from simcluster_backends.sockets.wire.frame import LENGTH, Frame
from simcluster_backends.sockets.wire.outgoing import data_frame
from simcluster_backends.sockets.wire.reader import FrameReader

from simcluster.errors import ProtocolError
from simcluster.payload import lend, pack
from simcluster.testing import CHECKS, RunBodies
from tests.backends.sockets.node.test_sockets_transport import run
from tests.support.socket_cluster import run_bodies

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has files in memory without a name")
LARGE = 3 * SLOTS * SLOT_BYTES // 4  # floats: three times what fits into the slots


@contextmanager
def both_ends() -> Iterator[tuple[SendSlots, ReceiveSlots]]:
    ours = SendSlots.make()
    assert ours is not None
    theirs = ReceiveSlots.accept(ours.offer)
    assert theirs is not None
    ours.heard()
    yield ours, theirs
    ours.close()
    theirs.close()


def feed(reader: FrameReader, chunk: Any) -> list[Frame]:
    found = []
    data = bytes(chunk)
    while data:
        place = reader.buffer()
        size = min(len(place), len(data))
        place[:size], data = data[:size], data[size:]
        reader.received(size)
        while (frame := reader.next_frame()) is not None:
            found.append(frame)
    return found


@pytest.mark.slow
@given(
    lengths=st.lists(st.integers(0, 700_000), min_size=1, max_size=5),
    part_bytes=st.sampled_from([300_001, 2**28]),
    digests=st.booleans(),
    pieces=st.sampled_from([1, 3, 10**6]),
)
def test_bodies_of_any_pieces_arrive_equal_while_slots_are_few(
    lengths: list[int], part_bytes: int, digests: bool, pieces: int
) -> None:
    reader = FrameReader(is_open=True)
    content = pack(*(torch.randint(255, (length,), dtype=torch.uint8) for length in lengths), torch.ones(200_000), n=1)
    frame, found, stream = data_frame("t", content, part_bytes), [], b""
    with both_ends() as (ours, theirs):
        reader.slots, reader.digests = theirs, digests
        for chunk in frame.chunks(0, ours):
            stream += bytes(chunk)
            if not chunk:  # no slot is free: the receiver reads
                while stream:
                    found += feed(reader, stream[:pieces])
                    stream = stream[pieces:]
                ours.heard()
                assert ours.has_room(), "it has given slots back"
        found += feed(reader, stream)
    assert len(found) == 1
    assert all(map(torch.equal, found[0].tensors, content.tensors))
    assert found[0].size_bytes == frame.size_bytes, "what is counted does not depend on the way"
    stream_reader = FrameReader(is_open=True)
    (other,) = [f for chunk in frame.chunks(0) for f in feed(stream_reader, chunk)]
    assert found[0].body_crc == (other.body_crc if digests else 0), "a replay knows it by the same digest"


def test_an_offer_that_is_not_of_this_machine_is_not_accepted() -> None:
    ours = SendSlots.make()
    assert ours is not None
    offer = msgspec.msgpack.decode(ours.offer, type=MemoryOffer)
    with tempfile.TemporaryFile() as file:
        file.write(b"x" * (SLOTS * SLOT_BYTES) + offer.nonce)
        file.flush()
        for change in (
            {"nonce": b"another"},  # another process with these numbers
            {"pid": 2**30},
            {"pid": -1},
            {"memory": 2**31},
            {"memory": offer.pipe},
            {"memory": file.fileno()},  # a file could end while it is read
            {"pipe": offer.memory},
            {"slots": SLOTS + 1},  # the nonce is not behind them
            {"slots": 0},
            {"slot_bytes": 2**40},
        ):
            changed = msgspec.structs.replace(offer, **change)
            assert ReceiveSlots.accept(msgspec.msgpack.encode(changed)) is None, change
    with pytest.raises(ProtocolError, match="an offer of shared memory cannot be decoded"):
        ReceiveSlots.accept(b"x")
    theirs = ReceiveSlots.accept(ours.offer)
    assert theirs is not None
    theirs.close()
    ours.close()


@pytest.mark.parametrize("length", [0, SLOT_BYTES + 1, 2**32 - 1])
def test_a_length_that_no_slot_has_ends_the_connection(length: int) -> None:
    reader = FrameReader(is_open=True)
    words = f"{length} bytes in a slot of shared memory; expected 1 to {SLOT_BYTES}"
    with both_ends() as (ours, reader.slots):
        assert not feed(reader, next(data_frame("t", pack(torch.ones(LARGE))).chunks(0, ours)))
        with pytest.raises(ProtocolError, match=words):
            feed(reader, LENGTH.pack(length))


def test_a_shared_body_without_shared_memory_is_refused() -> None:
    with both_ends() as (ours, _), pytest.raises(ProtocolError, match="flags 2"):
        feed(FrameReader(is_open=True), next(data_frame("t", pack(torch.ones(LARGE))).chunks(0, ours)))


@pytest.mark.slow
def test_no_file_outlives_its_connection() -> None:
    def opened() -> Counter[str]:
        names = (Path("/proc/self/fd") / name for name in os.listdir("/proc/self/fd"))
        return Counter(os.readlink(name) for name in names if name.is_symlink())

    exchanged(lend)  # opens what a process keeps
    gc.collect()
    before = opened()
    assert exchanged(lend) == [True, True]
    gc.collect()
    assert [name for name in opened() - before if name.startswith(("/memfd", "pipe"))] == []


def test_a_body_that_the_slots_hold_is_resent_from_them_whatever_becomes_of_the_senders_memory() -> None:
    # Two whole slots each: the third frame fills those of the first one again.
    lent = [torch.full((2 * SLOT_BYTES // 4,), float(number)) for number in range(3)]
    queue, reader, found = SendQueue(10**8), FrameReader(is_open=True), []
    with both_ends() as (queue.slots, reader.slots):
        sendings = [QueuedFrame(data_frame("t", lend(tensor)), None, None) for tensor in lent]
        for sending, tensor in zip(sendings, lent, strict=True):
            queue.put(sending)
            while queue.waits:
                chunk = queue.advance()
                found += feed(reader, chunk or b"")
            assert sending.frame.kept, "its sender does not wait"
            tensor.fill_(-1.0)
        queue.taken(1)
        assert sendings[0].frame.body == [], "what the peer has is forgotten"
    again = FrameReader(is_open=True)
    again.open(reader)
    again._seq = again.taken = 1  # the others were lost with the connection
    queue.restart(1)
    while queue.is_ready:
        found += feed(again, queue.advance() or b"")
    assert [frame.tensors[0].unique().tolist() for frame in found] == [[0.0], [1.0], [2.0], [1.0], [2.0]]


def test_a_body_that_is_not_acknowledged_moves_before_its_slots_are_filled_again() -> None:
    lent = [torch.full((2 * SLOT_BYTES // 4,), float(number)) for number in range(3)]
    queue, reader = SendQueue(10**8), FrameReader(is_open=True)
    with both_ends() as (queue.slots, reader.slots):
        for tensor in lent:
            queue.put(QueuedFrame(data_frame("t", lend(tensor)), None, None))
            while queue.waits:
                feed(reader, queue.advance() or b"")
            tensor.fill_(-1.0)
    queue.restart(0)
    again, found = FrameReader(is_open=True), []
    while queue.is_ready:
        found += feed(again, queue.advance() or b"")
    assert [frame.tensors[0].unique().tolist() for frame in found] == [[0.0], [1.0], [2.0]]


def exchanged(wrap: Callable[..., Any]) -> list[Any]:
    """Both nodes send several large messages before they receive any."""

    async def body(node: SocketTransport) -> bool:
        other = 1 - node.rank
        sent = [torch.full((LARGE,), float(number + 10 * node.rank)) for number in range(4)]
        async with asyncio.TaskGroup() as group:
            for tensor in sent:
                group.create_task(node.send(other, "t", wrap(tensor)))
        right = True
        for number in range(4):
            right &= bool((await node.recv(other, "t")).tensor.eq(float(number + 10 * other)).all())
        return right

    return run(body, body)


@pytest.mark.parametrize("wrap", [lend, pack])
def test_nodes_that_both_send_before_they_receive_do_not_wait_for_each_other(wrap: Callable[..., Any]) -> None:
    assert exchanged(wrap) == [True, True]


@pytest.mark.parametrize("shortcuts", ["memory", "landing"])
def test_only_lengths_are_on_the_stream_once_memory_is_shared(shortcuts: str) -> None:
    async def body(node: SocketTransport) -> int:
        other, tensor = 1 - node.rank, torch.ones(LARGE)
        link = node._member.links[other]
        await asyncio.gather(node.send(other, "first", lend(tensor)), node.recv(other, "first"))
        await asyncio.gather(node.send(other, "next", None), node.recv(other, "next"))
        before = link.bytes_moved
        for _ in range(10):
            await asyncio.gather(node.send(other, "t", lend(tensor)), node.recv(other, "t"))
        return link.bytes_moved - before

    # Twelve slots of a message are twelve lengths of 4 bytes, each way; a preamble and an acknowledgement of 40 bytes
    # and a header of less than 100. Ten messages: 20 * (48 + 40 + 40 + 100) < 5000 bytes instead of 2 * 10 * 6 MB.
    moved = run_bodies([body, body], shortcuts=shortcuts)
    assert max(moved) < 5000 if shortcuts == "memory" else min(moved) > 2 * 10 * 4 * LARGE


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_every_promise_holds_on_the_stream_alone(
    check: Callable[[RunBodies], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_memory, "_open", lambda *_: os.open("/nonexistent", os.O_RDONLY))  # another machine
    check(run_bodies)


@pytest.mark.slow
def test_a_mapping_outlives_the_process_that_filled_it() -> None:
    program = (
        "import sys, numpy as np; from simcluster_backends.sockets.net.shared_memory import SendSlots;"
        "s = SendSlots.make(); print(s.offer.hex(), flush=True); sys.stdin.readline(); s.heard();"
        "s.fill([np.full(1000, 7, np.uint8)]); print('filled', flush=True); sys.stdin.readline()"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdin=-1, stdout=-1, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    theirs = ReceiveSlots.accept(bytes.fromhex(process.stdout.readline()))
    assert theirs is not None
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "filled\n"
    process.kill()
    process.communicate()
    assert np.array_equal(theirs.take()[:1000], np.full(1000, 7, np.uint8))
    theirs.give_back()  # nobody reads it
