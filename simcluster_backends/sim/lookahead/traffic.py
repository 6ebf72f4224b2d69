"""The traffic of computed rounds in the nodes' records."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from simcluster.rounds import NO_RANK
from simcluster_backends.sim.lookahead.paths import outside
from simcluster_backends.sim.lookahead.sizes import messages_B

if TYPE_CHECKING:
    from simcluster_backends.sim.lookahead.course import Course, Leg
    from simcluster_backends.sim.lookahead.paths import Floats, Ints
    from simcluster_backends.sim.members import Members
    from simcluster_backends.sim.streams import Streams


def record(course: Course, over: int, ends_s: Floats, members: Members, streams: Streams, group: Ints) -> None:
    """Record the traffic of the first *over* rounds of *course*, which end at *ends_s*, of the ranks in *group*."""
    legs = [leg for leg in course.legs if leg.first < over]
    stops = [*((leg.first, leg.starts_s) for leg in legs[1:]), (over, ends_s)]
    for leg, (stop, stops_s) in zip(legs, stops, strict=True):
        _record(course, leg, stop, stops_s, members, streams, group)


def _record(
    course: Course, leg: Leg, stop: int, stops_s: Floats, members: Members, streams: Streams, group: Ints
) -> None:
    rounds, count = course.rounds, stop - leg.first
    sent_B = np.zeros(len(leg.to), dtype=np.int64)
    for number in range(leg.first, stop):
        sent_B += messages_B(rounds, number, course.ranks)
    sent_B[leg.to == NO_RANK] = 0
    to, source = outside(leg.to, group, len(members))[group], outside(leg.source, group, len(members))[group]
    all_sent_B = np.zeros(len(members), dtype=np.int64)
    all_sent_B[group] = sent_B
    streams.note_computed(outside(leg.to, group, len(members)), all_sent_B)
    tag = rounds.tag(leg.first) + (f" and the next {count - 1} rounds" if count > 1 else "")
    columns = (group, to, source, leg.starts_s, stops_s, sent_B, sent_B[leg.source])
    rows = zip(*(column.tolist() for column in columns), strict=True)
    for rank, to, source, start_s, stop_s, out_B, in_B in rows:
        node = members[rank]
        if to != NO_RANK:
            node.recorder.sent(to, out_B, count)
            node.recorder.span("send", start_s, stop_s, to, tag, out_B)
        if source != NO_RANK:
            node.recorder.received(in_B)
            node.recorder.span("recv", start_s, stop_s, source, tag, in_B)
