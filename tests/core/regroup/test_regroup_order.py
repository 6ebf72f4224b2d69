"""Model check of regrouping where messages overtake each other: a rank tells another what a third one has yet to tell.

Each pair of ranks has a link whose latency is drawn, so the way over a third rank may be faster than the direct one.
Ranks come back, rank 0 too, join late and leave, at any moment of six steps and of the agreements between them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import combinations
from math import inf
from typing import Any, TypeVar

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from simcluster.fault_plans.kinds import Crash, Fault, Hang, Join, Leave, NodeFault, Restart
from simcluster.topology import Topology
from tests.core.regroup.regrouping import DEAD_S, Outcome
from tests.core.regroup.test_regroup_laws import check
from tests.support.clusters import complete

EXAMPLES = 5_000 if os.environ.get("HYPOTHESIS_PROFILE") == "search" else 40

Test = TypeVar("Test", bound=Callable[..., Any])
Latencies = dict[tuple[int, int], float]


def ways_us(*latencies_us: float) -> Latencies:
    """Latencies by pair: (0, 1), (0, 2), ..., (1, 2), ..."""
    size = next(size for size in range(2, 6) if size * (size - 1) // 2 == len(latencies_us))
    return {pair: us * 1e-6 for pair, us in zip(combinations(range(size), 2), latencies_us, strict=True)}


def restart(rank: int, *spells_ms: tuple[float, float]) -> Restart:
    return Restart(rank=rank, spells=tuple((from_ms * 1e-3, to_ms * 1e-3) for from_ms, to_ms in spells_ms))


def join(rank: int, at_ms: float) -> Join:
    return Join(rank=rank, spells=((0.0, at_ms * 1e-3),))


def crash(rank: int, at_ms: float) -> Crash:
    return Crash(rank=rank, spells=((at_ms * 1e-3, inf),))


FOUND = {
    "all hear from rank 0 that a rank is back before they hear that it was gone: a mark goes to its former life": (
        ways_us(10, 10, 30, 1000, 1000, 1000),
        [restart(2, (6.63, 6.65))],
    ),
    "rank 4 hears from the next leader before it hears the last that rank 0 had decided": (
        ways_us(100, 30, 300, 1000, 1000, 100, 100, 1000, 30, 300),
        [restart(2, (6.465, 6.466)), crash(0, 8.945)],
    ),
    "rank 0 joins, and leads, while rank 1 asks to be let in; it was not there when rank 1 first asked": (
        ways_us(10, 30, 1000, 300, 1000, 1000, 10, 100, 100, 300),
        [join(0, 1.03), join(1, 0.185), Leave(rank=4, spells=((2.005e-3, 30.0),))],
    ),
    "a life of rank 1 is over, and the next one there, before rank 0 hears that it had begun": (
        ways_us(1000, 300, 10),
        [restart(1, (8.43, 8.45), (9.4, 9.42)), restart(2, (6.33, 6.331), (15.376, 15.377))],
    ),
    "a decision comes when a life that it counts on is over, and the next one asks already": (
        ways_us(1000, 10, 1000),
        [restart(0, (3.745, 4.05), (8.835, 8.836))],
    ),
    "the first call of a life has the number of the last call of the life before": (
        ways_us(10, 100, 10, 10, 100, 10),
        [restart(0, (0.32, 0.34)), crash(3, 0.135)],
    ),
    "rank 1 asks rank 0 while both ask to be let in; then rank 0 leads": (
        ways_us(300, 300, 1000, 1000, 1000, 300),
        [restart(0, (18.725, 18.726)), restart(1, (14.97, 18.71))],
    ),
    "the call of a leader that is dead comes to a rank that asks after that of the next leader": (
        ways_us(1000, 100, 1000, 100, 100, 100),
        [crash(0, 4.955), restart(1, (2.821, 2.841))],
    ),
    "rank 1 leads, has lost all peers, and knows from a leader before that rank 2 is back": (
        ways_us(10, 10, 1000),
        [restart(0, (3.98, 10.29)), restart(2, (3.305, 3.325))],
    ),
    "rank 2 hears from others of its leader's death before it hears what that had decided": (
        ways_us(1000, 100, 100, 100, 1000, 100, 100, 100, 100, 100),
        [join(0, 3.66), restart(1, (4.755, 8.6)), join(2, 0.05)],
    ),
    "rank 2 never hears of the life of rank 0 that is in its group: the next one is there before": (
        ways_us(10, 1000, 10),
        [restart(0, (1.23, 1.51), (2.445, 2.465))],
    ),
}
"""Plans that once deadlocked, or left out a rank that came in time, and why."""


def found(test: Test) -> Test:
    """*test*, which has all of FOUND as examples."""
    for plan in FOUND.values():
        test = example(plan)(test)
    return test


moments = st.integers(1, 2_000).map(lambda number: number * 5e-6)
latencies = st.sampled_from([10e-6, 30e-6, 100e-6, 300e-6, 1e-3])
absences = st.one_of(moments, st.sampled_from([1e-6, 20e-6]))


def fates(rank: int) -> st.SearchStrategy[Fault | None]:
    """The fate of *rank*: none, often."""
    return st.one_of(
        st.none(),
        st.builds(lambda at: Crash(rank=rank, spells=((at, inf),)), moments),
        st.builds(lambda at, after: Restart(rank=rank, spells=((at, at + after),)), moments, absences),
        st.builds(
            lambda at, after, up, again: Restart(
                rank=rank, spells=((at, at + after), (at + after + up, at + after + up + again))
            ),
            *(moments, absences, moments, absences),
        ),
        st.builds(lambda at: Join(rank=rank, spells=((0.0, at),)), moments),
        st.builds(lambda at: Leave(rank=rank, spells=((at, at + 30.0),)), moments),
        st.builds(lambda at: Hang(rank=rank, spells=((at, at + DEAD_S / 3),)), moments),
    )


@st.composite
def plans(draw: st.DrawFn) -> tuple[Latencies, list[Fault]]:
    size = draw(st.integers(2, 5))
    ways = {pair: draw(latencies) for pair in combinations(range(size), 2)}
    spared = draw(st.integers(0, size - 1))  # it remembers the run
    drawn = [draw(fates(rank)) for rank in range(size) if rank != spared]
    return ways, [fault for fault in drawn if fault is not None]


def comers_in_time(outcome: Outcome, faults: list[Fault], within_s: float) -> set[int]:
    """The ranks whose last life began *within_s* or longer before the first rank ended that nothing has hit."""
    hit = {fault.rank for fault in faults if isinstance(fault, NodeFault)}
    end_s = min(lives[-1].ended_s for rank, lives in enumerate(outcome.lives) if rank not in hit)
    came_s = {fault.rank: fault.spells[-1][1] for fault in faults if isinstance(fault, (Join, Restart))}
    return {rank for rank, at_s in came_s.items() if at_s + within_s < end_s}


@pytest.mark.slow
@pytest.mark.timeout(600 if EXAMPLES < 5_000 else 7_200)
@settings(max_examples=EXAMPLES, deadline=None)
@given(plans())
@found
def test_nodes_that_are_not_hit_or_came_in_time_end_well_whichever_message_is_first(
    plan: tuple[Latencies, list[Fault]],
) -> None:
    ways, faults = plan
    topology: Topology = complete(ways)
    size = len(topology.workers)
    outcome = check(size, faults, topology)
    hit = {fault.rank for fault in faults if isinstance(fault, NodeFault) and not isinstance(fault, Hang)}
    assert set(range(size)) - hit <= set(outcome.ended)
    in_time = comers_in_time(outcome, faults, within_s=6 * max(ways.values()) + DEAD_S)
    assert in_time <= set(outcome.ended), f"came in time and are not in the last group: {in_time - set(outcome.ended)}"
