"""The order of a rank's work in a pipeline: three schedules, as lists of tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal, NamedTuple


class Task(NamedTuple):
    """One micro-batch through one of the rank's chunks, forward or backward."""

    way: Literal["forward", "backward"]
    chunk: int
    micro: int


def gpipe(p: int, i: int, m: int, v: int) -> list[Task]:
    """Return all m forward, then all backward, last first (Huang et al. 2019, figure 2c): m stashed."""
    forward = [Task("forward", 0, k) for k in range(m)]
    return forward + [Task("backward", 0, k) for k in reversed(range(m))]


def one_forward_one_backward(p: int, i: int, m: int, v: int) -> list[Task]:
    """Return p - 1 - i forward to warm up, then one forward, one backward in turn (Narayanan et al. 2021, section
    2.2.1): at most p - i stashed.
    """
    forward = [Task("forward", 0, k) for k in range(m)]
    backward = [Task("backward", 0, k) for k in range(m)]
    return _alternating(forward, backward, p - 1 - i)


def interleaved(p: int, i: int, m: int, v: int) -> list[Task]:
    """Return rank i's tasks for stages i, p + i, ..., v in total; p micro-batches at a time pass through each (section
    2.2.2), which divides the bubble by v. p must divide m.
    """
    if v == 1:
        return one_forward_one_backward(p, i, m, v)
    turns = [(k // (p * v) * p + k % p, k % (p * v) // p) for k in range(m * v)]
    forward = [Task("forward", chunk, micro) for micro, chunk in turns]
    backward = [Task("backward", v - 1 - chunk, micro) for micro, chunk in turns]
    return _alternating(forward, backward, 2 * (p - 1 - i) + (v - 1) * p)


def _alternating(forward: list[Task], backward: list[Task], warm_up: int) -> list[Task]:
    warm_up = min(warm_up, len(forward))
    steady = [task for pair in zip(forward[warm_up:], backward, strict=False) for task in pair]
    return forward[:warm_up] + steady + backward[len(forward) - warm_up :]


ORDERS: Final[Mapping[str, Callable[[int, int, int, int], list[Task]]]] = {
    "gpipe": gpipe,
    "1f1b": one_forward_one_backward,
    "interleaved": interleaved,
}
"""By name: (p ranks, this rank i, m micro-batches, v chunks per rank) -> the rank's tasks in a step."""
