"""The traffic of computed rounds in the nodes' records."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from simcluster.rounds import NO_RANK
from simcluster_backends.sim.lookahead.course import times_of
from simcluster_backends.sim.lookahead.paths import outside
from simcluster_backends.sim.lookahead.sizes import bodies_B, messages_B

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


def record_each(course: Course, over: int, members: Members, streams: Streams) -> None:
    """Record the first *over* rounds message by message, as they are without being computed."""
    legs, rounds, starts_s = list(course.legs), course.rounds, course.starts_s(0)
    for number in range(over):
        if len(legs) > 1 and legs[1].first <= number:
            del legs[0]
        leg, tag = legs[0], rounds.tag(number)
        left_s, came_s, ends_s = times_of(leg, starts_s, bodies_B(rounds, number, course.ranks))
        sent_B = np.where(leg.to == NO_RANK, 0, messages_B(rounds, number, course.ranks))
        streams.note_computed(leg.to, sent_B)
        received_s = np.maximum(starts_s, came_s[leg.source])
        columns = (leg.to, leg.source, starts_s, left_s, received_s, sent_B, sent_B[leg.source])
        rows = zip(*(column.tolist() for column in columns), strict=True)
        for node, (to, source, start_s, out_s, in_s, out_B, in_B) in zip(members, rows, strict=True):
            if source != NO_RANK:
                node.recorder.received(in_B)
                node.recorder.span("recv", start_s, in_s, source, tag, in_B)
            if to != NO_RANK:
                node.recorder.sent(to, out_B)
                node.recorder.span("send", start_s, out_s, to, tag, out_B)
        starts_s = ends_s
