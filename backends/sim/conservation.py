"""That no byte is lost but by name: what left the senders has arrived, is under way, or was dropped by a fault.

This file knows two accounts that are kept apart: the senders' (what their recorders say has left) and the streams'. It
must not know how either comes about. It is looked at once, at the end of every run.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from backends.sim.stream import Stream
    from backends.sim.transport import SimTransport


def check_conservation(nodes: Iterable[SimTransport], streams: Iterable[Stream]) -> None:
    """*streams* are all there have ever been. Only a fault drops, or the death of the receiver."""
    known_B: dict[tuple[int, int], int] = {}
    for stream in streams:
        way = (stream.sender.rank, stream.receiver.rank)
        known_B[way] = known_B.get(way, 0) + stream.arrived_B + stream.under_way_B + stream.dropped_B
    for node in nodes:
        for to, (_, sent_B) in node.recorder.record.sent_to.items():
            found_B = known_B.pop((node.rank, to), 0)
            assert sent_B == found_B, f"{node.name} sent {sent_B} B to rank {to}, and {found_B} B are accounted for"
    assert not any(known_B.values()), f"bytes that nobody sent: {known_B}"
