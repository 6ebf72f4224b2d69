"""The order of ranks that leave computed rounds at one time, as in the simulation.

Events of one time come in the order of the events that set them. A rank begins a round at its entry, when its message
has left, which its beginning of the round before set, or when a message arrives, which its departure set.

With more than MOST messages, finding this would take as long as computing the rounds: there ranks go on in rank order.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from simcluster.rounds import NO_RANK
from simcluster_backends.sim.lookahead.sizes import messages_B

if TYPE_CHECKING:
    from simcluster_backends.sim.lookahead.course import Course, RoundTimes
    from simcluster_backends.sim.lookahead.paths import Floats, Ints

MOST = 2**20

Origins: TypeAlias = NDArray[np.float64]
"""Rows by rank, for the event that begins its round: when that was set, when the event that set it was, the place
of this one among its like, and the round of the message that came, counted from 1, or 0.
"""


def leaving_order(course: Course, over: int, starts_s: Floats, entered: Ints) -> list[int]:
    """Return the ranks in their order of beginning round *over*, at *starts_s*; *entered* has that of their entries.

    Not exact: a departure and an arrival of one time that were set at one time.
    """
    if over * len(starts_s) > MOST or len(np.unique(starts_s)) == len(starts_s):
        order: list[int] = np.argsort(starts_s, kind="stable").tolist()
        return order
    origins = np.zeros((4, len(starts_s)))
    origins[2][entered] = course.ranks
    departed, last, arriving = origins[2], None, origins
    for run in course.runs(0, over + 1):
        if last is not None and course.may_fill:
            origins = _with_room(course, last, run.leg.to, origins, arriving)
        if run.number < over:
            origins, departed, arriving = _next(run, origins, departed)
        last = run
    order = np.lexsort((*origins[::-1], starts_s)).tolist()
    return order


def _next(run: RoundTimes, origins: Origins, departed: Floats) -> tuple[Origins, Floats, Origins]:
    """Return the origins of the ranks' next beginnings, the order of their last messages that took time to leave, and
    the origins of the arrivals of their messages.

    The second is *departed* in a round of start messages, which leave at the same event.
    """
    starts_s, left_s, came_s, source = run.starts_s, run.left_s, run.came_s, run.leg.source
    set_s, before_s, place, came_in = origins
    began = _places(came_in, place, before_s)
    own, takes_time = np.zeros(len(source)), left_s > starts_s
    departed = _places(began, set_s) if takes_time.any() else departed
    leaving = np.where(takes_time, (starts_s, set_s, began, own), origins)
    arriving = np.where(takes_time, (left_s, starts_s, departed, own), (left_s, set_s, departed, own))
    arriving = np.where(came_s > left_s, arriving, leaving)
    arriving[3] = run.number + 1
    comes_last = _is_later((came_s[source], *arriving[:, source]), (left_s, *leaving)) & (source != NO_RANK)
    return np.where(comes_last, arriving[:, source], leaving), departed, arriving


def _with_room(course: Course, last: RoundTimes, to: Ints, origins: Origins, arriving: Origins) -> Origins:
    """Return the *origins* of the messages of the round after *last*, in which ranks send *to* others.

    A message to a full inbox begins when the one before is taken. That is as it arrives, before the receiver continues.
    """
    fills = messages_B(course.rounds, last.number, course.ranks) >= course.limit_B
    again = fills & (to == last.leg.to) & (to != NO_RANK)
    waits = again & _is_later((last.came_s, *arriving[:3]), (last.ends_s, *origins[:3]))
    return np.where(waits, (*arriving[:3], np.zeros(len(to))), origins)


def _is_later(keys: Iterable[Floats], others: Iterable[Floats]) -> NDArray[np.bool_]:
    """Return where *keys* sort after *others*, the first one first."""
    later, is_same = np.zeros(1, dtype=np.bool_), np.ones(1, dtype=np.bool_)
    for mine, other in zip(keys, others, strict=True):
        later, is_same = later | (is_same & (mine > other)), is_same & (mine == other)
    return later


def _places(*keys: Floats) -> Floats:
    """Return numbers that sort the ranks as *keys* do, the last one first."""
    keys = tuple(key for key in keys if (key != key[0]).any()) or keys[:1]
    if len(keys) == 1:
        return keys[0]
    places = np.empty(len(keys[0]))
    places[np.lexsort(keys)] = np.arange(len(places))
    return places
