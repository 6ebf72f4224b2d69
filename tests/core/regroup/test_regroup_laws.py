"""Model check of regrouping: whoever dies, hangs, leaves, comes or is cut off, whenever that is.

Five ranks at most, that sum a number each in six steps of some 0.2 to 0.4 ms each, so the faults below fall into any
message of a step, of an agreement, of a way into the next group, and of the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from simcluster.errors import Left, PeerLost
from simcluster.fault_plans.kinds import (
    Crash,
    Cut,
    Fault,
    Hang,
    Join,
    Leave,
    NodeFault,
    Partition,
    Restart,
)
from simcluster.topology import Topology
from tests.core.regroup.regrouping import STEPS, Outcome, alone

moments = st.integers(1, 400).map(lambda number: number * 5e-6)
ends = st.sampled_from([1e-4, 1e-3, inf])


def of_nodes(size: int) -> st.SearchStrategy[Fault]:
    ranks = st.integers(0, size - 1)
    return st.one_of(
        st.builds(lambda rank, at: Crash(rank=rank, spells=((at, inf),)), ranks, moments),
        st.builds(lambda rank, at, after: Restart(rank=rank, spells=((at, at + after),)), ranks, moments, moments),
        st.builds(lambda rank, at: Leave(rank=rank, spells=((at, at + 1e-3),)), ranks, moments),
        st.builds(lambda rank, at: Join(rank=rank, spells=((0.0, at),)), ranks, moments),
        st.builds(lambda rank, at, lasts: Hang(rank=rank, spells=((at, at + lasts),)), ranks, moments, ends),
    )


def of_ways(size: int) -> st.SearchStrategy[Fault]:
    parted = st.permutations(range(size)).flatmap(
        lambda order: st.integers(1, size - 1).map(lambda cut: (tuple(order[:cut]), tuple(order[cut:])))
    )
    links = st.tuples(st.integers(0, size - 1), st.sampled_from([None, "sw", "n"]))
    return st.one_of(
        st.builds(
            lambda groups, at, lasts: Partition(groups=groups, spells=((at, at + lasts),)), parted, moments, ends
        ),
        st.builds(
            lambda end, at, lasts: Cut(
                link=f"n{end[0]}-sw", towards=f"n{end[0]}" if end[1] == "n" else end[1], spells=((at, at + lasts),)
            ),
            links,
            moments,
            ends,
        ),
    )


def plans(ways: bool) -> st.SearchStrategy[tuple[int, list[Fault]]]:
    def of(size: int) -> st.SearchStrategy[tuple[int, list[Fault]]]:
        kinds = st.one_of(of_nodes(size), of_ways(size)) if ways else of_nodes(size)
        once = st.lists(kinds, min_size=1, max_size=4).map(each_node_once)
        some_begin = once.filter(lambda faults: sum(isinstance(fault, Join) for fault in faults) < size)
        return some_begin.map(lambda faults: (size, faults))

    return st.integers(2, 5).flatmap(of)


def each_node_once(faults: list[Fault]) -> list[Fault]:
    """A node has one fate."""
    found: dict[Any, Fault] = {getattr(fault, "rank", id(fault)): fault for fault in reversed(faults)}
    return list(found.values())


def check(size: int, faults: Sequence[Fault], topology: Topology | None = None) -> Outcome:
    """Nothing hangs, or this raises; whoever ended did so in one group with the weights of all who are in it."""
    outcome = Outcome(size, faults, topology)
    weights: dict[tuple[int, tuple[int, ...]], set[float]] = {}
    for rank, (number, members, x) in outcome.ended.items():
        assert rank in members
        weights.setdefault((number, tuple(members)), set()).add(x)
    assert all(len(found) == 1 for found in weights.values()), weights
    last = max((number for number, _ in weights), default=0)
    assert sum(number == last for number, _ in weights) <= 1, f"two groups side by side: {weights}"
    for rank, result in enumerate(outcome.results):
        lives = any(isinstance(fault, NodeFault) and fault.rank == rank for fault in faults)
        cut = any(isinstance(fault, (Cut, Partition)) for fault in faults)
        if isinstance(result, (PeerLost, Left)):
            assert lives or cut, f"rank {rank} was not hit: {result}"
        elif isinstance(result, BaseException):
            assert lives, f"rank {rank} was not hit: {result!r}"
    return outcome


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(plans(ways=False))
@example((3, [Hang(rank=2, spells=((1.122e-3, 2.122e-3),))]))  # while the first one waits for the end of the others
@example((4, [Crash(rank=2, spells=((49e-6, inf),)), Crash(rank=3, spells=((168e-6, inf),))]))  # heard from another
@example(
    (
        4,
        [
            Leave(rank=3, spells=((1.75e-3, 2.75e-3),)),  # at the end of the last step
            Hang(rank=1, spells=((1.122e-3, 1.222e-3),)),
            Join(rank=2, spells=((0.0, 125e-6),)),
        ],
    )
)
@example((3, [Restart(rank=1, spells=((726e-6, 1.326e-3),)), Join(rank=0, spells=((0.0, 0.4e-3),))]))
def test_whoever_is_not_hit_ends_well_with_the_others_of_its_group(plan: tuple[int, list[Fault]]) -> None:
    size, faults = plan
    outcome = check(size, faults)
    hit = {fault.rank for fault in faults if isinstance(fault, NodeFault)}
    assert set(range(size)) - hit <= set(outcome.ended)


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(plans(ways=True))
@example((4, [Partition(groups=((1, 2), (3,)), spells=((850e-6, inf),)), Crash(rank=2, spells=((231e-6, inf),))]))
def test_no_two_groups_go_on_side_by_side(plan: tuple[int, list[Fault]]) -> None:
    check(*plan)


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 5), st.data())
def test_a_crash_leaves_what_the_step_of_all_and_the_smaller_world_give(size: int, data: st.DataObject) -> None:
    rank = data.draw(st.integers(0, size - 1))
    outcome = Outcome(size, [Crash(rank=rank, spells=((data.draw(moments), inf),))])
    left = [other for other in range(size) if other != rank]
    for other in left:
        number, members, x = outcome.ended[other]
        if number == 0:
            assert x == alone((STEPS, range(size)))  # it had ended
        else:
            step = outcome.lives[other][-1].changes[-1]
            assert x == alone((step, range(size)), (STEPS, members))
