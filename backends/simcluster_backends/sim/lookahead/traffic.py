"""Enter the traffic of computed rounds in the nodes' records."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from simcluster.rounds import NO_RANK
from simcluster_backends.sim.lookahead.paths import outside
from simcluster_backends.sim.lookahead.sizes import messages_B

if TYPE_CHECKING:
    from simcluster_backends.sim.lookahead.paths import Floats, Ints
    from simcluster_backends.sim.lookahead.schedule_times import Course, CourseLeg
    from simcluster_backends.sim.members import Members
    from simcluster_backends.sim.streams import Streams


FEW = 4096
"""The maximum number of messages recorded one by one: recording is slower than computing."""


def record(course: Course, over: int, ends_s: Floats, members: Members, streams: Streams, group: Ints) -> None:
    """Record the first *over* rounds of *course*, which end at *ends_s*, for the ranks in *group*.

    Up to FEW messages are recorded one by one, as in a simulation. More messages are recorded as
    one sum per path.
    """
    if is_by_message(course, over):
        _record_each(course, over, members, streams, group)
        return
    legs = [leg for leg in course.legs if leg.first < over]
    stops = [*((leg.first, leg.starts_s) for leg in legs[1:]), (over, ends_s)]
    for leg, (stop, stops_s) in zip(legs, stops, strict=True):
        _record(course, leg, stop, stops_s, members, streams, group)


def is_by_message(course: Course, over: int) -> bool:
    """Return whether messages of the first *over* rounds of *course* are recorded one by one."""
    return over * len(course.ranks) <= FEW


def _record(
    course: Course, leg: CourseLeg, stop: int, stops_s: Floats, members: Members, streams: Streams, group: Ints
) -> None:
    rounds = course.rounds
    count = stop - leg.first
    sent_B = np.zeros(len(leg.to), dtype=np.int64)
    for number in range(leg.first, stop):
        sent_B += messages_B(rounds, number, course.ranks)
    sent_B[leg.to == NO_RANK] = 0
    to, source = _noted(leg, sent_B, members, streams, group)
    tag = rounds.tag(leg.first) + (f" and the next {count - 1} rounds" if count > 1 else "")
    columns = (group, to, source, leg.starts_s, stops_s, sent_B, sent_B[leg.source])
    rows = zip(*(column.tolist() for column in columns), strict=True)
    for rank, to_rank, from_rank, start_s, stop_s, out_B, in_B in rows:
        recorder = members[rank].recorder
        if to_rank != NO_RANK:
            recorder.sent(to_rank, out_B, count)
            recorder.span("send", start_s, stop_s, to_rank, tag, out_B)
        if from_rank != NO_RANK:
            recorder.received(in_B)
            recorder.span("recv", start_s, stop_s, from_rank, tag, in_B)


def _record_each(course: Course, over: int, members: Members, streams: Streams, group: Ints) -> None:
    rounds = course.rounds
    entered_s = course.starts_s(0)
    spans = list[Any]()
    for number, leg, starts_s, left_s, came_s, _ in course.runs(0, over):
        tag = rounds.tag(number)
        since_s = entered_s if number < rounds.gathering else starts_s
        sent_B = np.where(leg.to == NO_RANK, 0, messages_B(rounds, number, course.ranks))
        to, source = _noted(leg, sent_B, members, streams, group)
        received_s = np.maximum(since_s, came_s[leg.source])
        columns = (group, to, source, starts_s, left_s, since_s, received_s, sent_B, sent_B[leg.source])
        rows = zip(*(column.tolist() for column in columns), strict=True)
        for rank, to_rank, from_rank, start_s, out_s, wait_s, in_s, out_B, in_B in rows:
            recorder = members[rank].recorder
            if from_rank != NO_RANK:
                recorder.received(in_B)
                spans.append((recorder, "recv", wait_s, in_s, from_rank, tag, in_B))
            if to_rank != NO_RANK:
                recorder.sent(to_rank, out_B)
                spans.append((recorder, "send", start_s, out_s, to_rank, tag, out_B))
        if number + 1 == rounds.gathering:
            spans.reverse()  # a rank takes waiting messages of the last round first
            spans.sort(key=itemgetter(3, 1))  # sort by end time, "recv" first
        if number + 1 >= rounds.gathering:
            for recorder, *span in spans:
                recorder.span(*span)
            spans.clear()


def _noted(leg: CourseLeg, sent_B: Ints, members: Members, streams: Streams, group: Ints) -> tuple[Ints, Ints]:
    """Note the bytes that each rank sends; return receivers and senders as ranks of the cluster."""
    to = outside(leg.to, group, len(members))
    all_sent_B = np.zeros(len(members), dtype=np.int64)
    all_sent_B[group] = sent_B
    streams.note_computed(to, all_sent_B)
    return to[group], outside(leg.source, group, len(members))[group]
