"""The order in which ranks leave computed rounds at the same time, as in a simulation.

Events at the same time happen in the order of the events that set them. One of three events begins
a rank's round: its entry; the departure of its message, an event that was set when the rank began
the previous round; or the arrival of a message, an event that was set by the message's departure.

With more than MOST messages, finding this order would take as long as computing the rounds. Then
ranks with the same time continue in rank order.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from simcluster.rounds import NO_RANK
from simcluster_backends.sim.lookahead.sizes import messages_B

if TYPE_CHECKING:
    from simcluster_backends.sim.lookahead.paths import Floats, Ints
    from simcluster_backends.sim.lookahead.schedule_times import Course, RoundTimes

MOST = 2**20

Origins: TypeAlias = NDArray[np.float64]
"""The event that begins each rank's round; one column per rank.

The rows are: the time at which that event was set; the time at which its setter, the event that set
it, was set itself; a number that orders the setters with the same two times; and the round, counted
from 1, of the message that arrived, or 0 if no message did.
"""


def leaving_order(course: Course, over: int, starts_s: Floats, entered: Ints) -> list[int]:
    """Return the ranks in the order in which they begin round *over*, at *starts_s*.

    *entered* lists the ranks in order of entry. The order of a departure and an arrival is not
    exact if they have the same time and were set at the same time.
    """
    if over * len(starts_s) > MOST or len(np.unique(starts_s)) == len(starts_s):
        order: list[int] = np.argsort(starts_s, kind="stable").tolist()
        return order
    origins = np.zeros((4, len(starts_s)))
    origins[2][entered] = course.ranks
    departed = origins[2]
    last = None
    arriving = origins
    for run in course.runs(0, over + 1):
        if last is not None and course.may_fill:
            origins = _with_room(course, last, run.leg.to, origins, arriving)
        if run.number < over:
            origins, departed, arriving = _next(run, origins, departed)
        last = run
    order = np.lexsort((*origins[::-1], starts_s)).tolist()
    return order


def _next(run: RoundTimes, origins: Origins, departed: Floats) -> tuple[Origins, Floats, Origins]:
    """Return *origins* and *departed* of the next round, and the origins of arrivals in *run*.

    *departed* orders the last messages that took time to leave. A round does not change
    *departed* if none of its messages takes time.
    """
    starts_s = run.starts_s
    left_s = run.left_s
    came_s = run.came_s
    source = run.leg.source
    set_s, before_s, place, came_in = origins
    began = _places(came_in, place, before_s)
    own = np.zeros(len(source))
    takes_time = left_s > starts_s
    departed = _places(began, set_s) if takes_time.any() else departed
    leaving = np.where(takes_time, (starts_s, set_s, began, own), origins)
    arriving = np.where(takes_time, (left_s, starts_s, departed, own), (left_s, set_s, departed, own))
    arriving = np.where(came_s > left_s, arriving, leaving)
    arriving[3] = run.number + 1
    comes_last = _is_later((came_s[source], *arriving[:, source]), (left_s, *leaving)) & (source != NO_RANK)
    return np.where(comes_last, arriving[:, source], leaving), departed, arriving


def _with_room(course: Course, last: RoundTimes, to: Ints, origins: Origins, arriving: Origins) -> Origins:
    """Return *origins* of the round after *last*, in which each rank r sends to rank *to[r]*.

    A message to a full inbox leaves only when the receiver takes the previous message. That happens
    when the previous message arrives, before the receiver continues.
    """
    fills = messages_B(course.rounds, last.number, course.ranks) >= course.limit_B
    again = fills & (to == last.leg.to) & (to != NO_RANK)
    waits = again & _is_later((last.came_s, *arriving[:3]), (last.ends_s, *origins[:3]))
    return np.where(waits, (*arriving[:3], np.zeros(len(to))), origins)


def _is_later(keys: Iterable[Floats], others: Iterable[Floats]) -> NDArray[np.bool_]:
    """Return, per rank, whether *keys* sort after *others*. The first key is the primary one."""
    later, is_same = np.zeros(1, dtype=np.bool_), np.ones(1, dtype=np.bool_)
    for mine, other in zip(keys, others, strict=True):
        later, is_same = later | (is_same & (mine > other)), is_same & (mine == other)
    return later


def _places(*keys: Floats) -> Floats:
    """Return numbers that sort the ranks as *keys* do. The last key is the primary one."""
    # Drop keys that are equal for all ranks. Often only one is left, and can be returned unsorted.
    keys = tuple(key for key in keys if (key != key[0]).any()) or keys[:1]
    if len(keys) == 1:
        return keys[0]
    places = np.empty(len(keys[0]))
    places[np.lexsort(keys)] = np.arange(len(places))
    return places
