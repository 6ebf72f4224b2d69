"""The logic of resending, without I/O: whatever breaks and whenever, each frame is delivered once and in order."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from simcluster_backends.sockets.net.send_queue import QueuedFrame, SendQueue
from simcluster_backends.sockets.wire.frame import Frame, FrameKind
from simcluster_backends.sockets.wire.outgoing import data_frame
from simcluster_backends.sockets.wire.reader import FrameReader

from simcluster.errors import ProtocolError
from simcluster.payload import lend, pack

KEEPS_BYTES = 2000


class Wire:
    """A sender's queue and a receiver's reader, and the bytes between them on the connection of the moment."""

    def __init__(self) -> None:
        self.queue, self.reader = SendQueue(KEEPS_BYTES), FrameReader()
        self.reader.open()
        self.got: list[Frame] = []
        self.line = b""
        self.said: list[int] = []  # acknowledgements on their way back

    def leaves(self, chunks: int) -> None:
        for _ in range(chunks):
            if self.queue.is_ready:
                self.line += bytes(self.queue.advance() or b"")

    def arrives(self, count: int) -> None:
        data, self.line = self.line[:count], self.line[count:]
        while data:
            place = self.reader.buffer()
            size = min(len(place), len(data))
            place[:size] = data[:size]
            data = data[size:]
            self.reader.received(size)
            while (frame := self.reader.next_frame()) is not None:
                self.got.append(frame)

    def says(self) -> None:
        self.said.append(self.reader.taken)

    def hears(self) -> None:
        if self.said:
            self.queue.taken(self.said.pop(0))

    def resets(self) -> None:
        """Lose what is in flight either way, and begin again with another connection."""
        self.line, self.said = b"", []
        reader = FrameReader()
        reader.open(self.reader)
        self.reader = reader
        self.queue.restart(self.reader.taken)

    def ends(self) -> None:
        """Deliver the rest."""
        while self.queue.waits or self.queue.kept or self.line:
            while self.queue.is_ready:
                self.leaves(1)
            self.arrives(len(self.line))
            self.queue.taken(self.reader.taken)


MOVES = st.one_of(
    st.tuples(st.just("put"), st.integers(0, 300)),
    st.tuples(st.just("leaves"), st.integers(1, 4)),
    st.tuples(st.just("arrives"), st.integers(1, 3000)),
    st.tuples(st.sampled_from(["says", "hears", "resets"]), st.just(0)),
)


@given(st.lists(MOVES, max_size=60), st.sampled_from([64, 2**20]))
def test_any_interleaving_of_resets_and_acknowledgements_delivers_each_frame_once_and_in_order(
    moves: list[tuple[str, int]], part_bytes: int
) -> None:
    wire, lengths = Wire(), []
    for move, number in moves:
        if move == "put":
            content = pack(torch.full((number,), float(len(lengths))))
            wire.queue.put(QueuedFrame(data_frame("t", content, part_bytes), None, None))
            lengths.append(number)
        else:
            getattr(wire, move)(*([number] if number else []))
        assert wire.queue.kept_bytes < KEEPS_BYTES + max(map(kept_bytes, lengths), default=0), "what is kept is bounded"
    wire.ends()
    assert [len(frame.tensors[0]) for frame in wire.got] == lengths
    assert all((frame.tensors[0] == index).all() for index, frame in enumerate(wire.got))
    assert not wire.queue.kept
    assert not wire.queue.kept_bytes


def kept_bytes(length: int) -> int:
    """More than a frame with *length* floats takes in parts of 64 bytes."""
    return 200 + 4 * length + 40 * (4 * length // 64 + 1)


@pytest.mark.parametrize("number", [-1, 0, 1, 3, 5, 2**63])
def test_numbers_that_no_peer_can_have_taken_are_refused(number: int) -> None:
    # Frames of 2, 1 and 2 parts: 0-1 acknowledged, 2 left, 3-4 in the middle. So 2 and 3 are possible.
    wire = Wire()
    for length in (20, 5, 20):
        wire.queue.put(QueuedFrame(data_frame("t", pack(torch.zeros(length)), 64), None, None))
    while wire.queue.waits[0].seq != 3:
        wire.leaves(1)
    wire.queue.taken(2)
    if number == 3:
        wire.queue.taken(number)
        return
    for told in (wire.queue.taken, wire.queue.restart):
        with pytest.raises(ProtocolError, match=f"taken {number} frames; acknowledged are 2, sent 5"):
            told(number)


def test_a_frame_whose_last_chunk_has_left_may_be_acknowledged_before_more_is_asked_for() -> None:
    wire, ended = Wire(), []
    wire.queue.put(QueuedFrame(data_frame("t", pack(value=1)), None, lambda: ended.append(True)))
    wire.leaves(1)
    wire.queue.taken(1)
    assert (ended, list(wire.queue.waits), list(wire.queue.kept)) == ([True], [], [])


def test_lent_memory_is_the_senders_again_when_it_is_acknowledged_and_a_copy_is_resent_after_a_withdrawal() -> None:
    lent, told = torch.ones(200_000), []
    wire = Wire()
    wire.queue = SendQueue(KEEPS_BYTES, told.append)
    sending = QueuedFrame(data_frame("t", lend(lent)), None, None)
    wire.queue.put(sending)
    while not told:
        wire.leaves(1)
    assert told == [sending]
    assert not sending.frame.kept
    assert not wire.queue.withdraw(sending), "it has begun, so it arrives"
    lent.fill_(-1.0)
    wire.resets()
    wire.ends()
    assert torch.equal(wire.got[0].tensors[0], torch.ones(200_000))


def test_an_acknowledgement_has_no_number_and_comes_between_frames_only() -> None:
    wire = Wire()
    wire.queue.put(QueuedFrame(data_frame("t", pack(torch.zeros(400_000))), None, None))
    wire.leaves(1)
    wire.queue.acknowledge(7)
    wire.queue.put(QueuedFrame(data_frame("t", pack(value=1)), None, None))
    while wire.queue.is_ready and (wire.queue.waits or wire.queue._says is not None):
        wire.leaves(1)
        wire.queue.kept_bytes = 0  # as if there were room
    wire.arrives(len(wire.line))
    assert [frame.kind for frame in wire.got] == [FrameKind.DATA, FrameKind.ACK, FrameKind.DATA]
    assert (wire.got[1].acknowledged, wire.reader.taken) == (7, 2)
