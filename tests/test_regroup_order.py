"""Model check of regrouping where messages overtake each other: a rank tells another what a third one has yet to tell.

Each pair of ranks has a link whose latency is drawn, so the way over a third rank may be faster than the direct one.
Ranks come back, rank 0 too, join late and leave, at any moment of six steps and of the agreements between them.
"""

from __future__ import annotations

import os
from itertools import combinations
from math import inf

from hypothesis import example, given, settings
from hypothesis import strategies as st

from simcluster.experiment.fault_kinds import Crash, Fault, Hang, Join, Leave, NodeFault, Restart
from simcluster.topology import Topology
from tests.clusters import complete
from tests.regrouping import DEAD_S, Outcome
from tests.test_regroup_laws import check

EXAMPLES = 5_000 if os.environ.get("HYPOTHESIS_PROFILE") == "search" else 60

Latencies = dict[tuple[int, int], float]

SLOW_WAYS = {(0, 1): 1e-5, (0, 2): 1e-5, (0, 3): 3e-5, (1, 2): 1e-3, (1, 3): 1e-3, (2, 3): 1e-3}
"""All hear from rank 0 of a rank that is back before they hear that it was gone."""

FAR_4 = {
    **{(0, 1): 1e-4, (0, 2): 3e-5, (0, 3): 3e-4, (0, 4): 1e-3, (1, 2): 1e-3},
    **{(1, 3): 1e-4, (1, 4): 1e-4, (2, 3): 1e-3, (2, 4): 3e-5, (3, 4): 3e-4},
}
"""Rank 4 hears from rank 1, which leads after rank 0, before it hears the last that rank 0 had decided."""

FAR_0_3 = {
    **{(0, 1): 1e-5, (0, 2): 3e-5, (0, 3): 1e-3, (0, 4): 3e-4, (1, 2): 1e-3},
    **{(1, 3): 1e-3, (1, 4): 1e-5, (2, 3): 1e-4, (2, 4): 1e-4, (3, 4): 3e-4},
}
"""Rank 0 joins, and leads, while rank 1 asks to be let in; it was not there when rank 1 first asked."""
LEAVES = ((2.005e-3, 30.0),)

FAR_3 = {(0, 1): 1e-3, (0, 2): 300e-6, (1, 2): 10e-6}
"""A life of rank 1 is over, and the next one there, before rank 0 hears that it had begun."""
BRIEFLY = ((8.43e-3, 8.45e-3), (9.4e-3, 9.42e-3))
LATER = ((6.33e-3, 6.331e-3), (15.376e-3, 15.377e-3))

moments = st.integers(1, 2_000).map(lambda number: number * 5e-6)
latencies = st.sampled_from([10e-6, 30e-6, 100e-6, 300e-6, 1e-3])
absences = st.one_of(moments, st.sampled_from([1e-6, 20e-6]))


def fates(rank: int) -> st.SearchStrategy[Fault | None]:
    """What becomes of *rank*: nothing, often."""
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


@settings(max_examples=EXAMPLES, deadline=None)
@given(plans())
@example((SLOW_WAYS, [Restart(rank=2, spells=((6.63e-3, 6.65e-3),))]))  # the mark for the new life goes to the old one
@example((FAR_4, [Restart(rank=2, spells=((6.465e-3, 6.466e-3),)), Crash(rank=0, spells=((8.945e-3, inf),))]))
@example(
    (
        FAR_0_3,
        [Join(rank=0, spells=((0.0, 1.03e-3),)), Join(rank=1, spells=((0.0, 185e-6),)), Leave(rank=4, spells=LEAVES)],
    )
)
@example((FAR_3, [Restart(rank=1, spells=BRIEFLY), Restart(rank=2, spells=LATER)]))
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
