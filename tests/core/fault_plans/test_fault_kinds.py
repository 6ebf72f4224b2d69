"""Faults as plain values: how long work takes under them, what they cut, and spells that are united."""

from __future__ import annotations

from itertools import pairwise
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcluster.fault_plans.kinds import Crash, Cut, Partition, Spell, severed, united
from simcluster.fault_plans.slowdown import Factors, stretched
from tests.support.clusters import chain
from tests.support.plans import plan


def test_work_is_stretched_only_while_a_factor_holds() -> None:
    # 0.5 s as fast as ever, then 1 s in which a third of a second's work is done, then the rest: 1/6 s.
    assert stretched([((0.5, 1.5), 3.0)], 0.0, 1.0) == pytest.approx(0.5 + 1.0 + 1 / 6, rel=1e-12)
    assert stretched([((0.5, 1.5), 3.0)], 1.5, 1.0) == 1.0
    assert stretched([((0.5, inf), 3.0)], 0.0, 1.0) == 0.5 + 1.5
    assert stretched([], 7.0, 1.0) == 1.0


def test_factors_that_hold_at_once_multiply() -> None:
    # Twice, then six times, then twice as slow: 0.5, 1/6 and 1/3 of the work.
    assert stretched([((0.0, inf), 2.0), ((1.0, 2.0), 3.0)], 0.0, 1.0) == pytest.approx(1.0 + 1.0 + 2 / 3, rel=1e-12)


def test_nothing_is_done_under_an_infinite_factor() -> None:
    assert stretched([((0.5, 2.5), inf)], 0.0, 1.0) == 3.0
    assert stretched([((0.5, inf), inf)], 0.0, 1.0) == inf
    assert stretched([((0.5, inf), inf)], 0.0, 0.5) == 0.5, "what is done before is done"


spells = st.tuples(st.floats(0, 10), st.floats(0.001, 5)).map(lambda drawn: (drawn[0], drawn[0] + drawn[1]))


factors_of = st.lists(st.tuples(spells, st.floats(1.1, 20)), max_size=5)


@given(factors_of, st.floats(0, 10), st.floats(0.01, 5), st.floats(0, 1))
def test_work_cut_in_two_takes_as_long_as_in_one(factors: Factors, from_s: float, work_s: float, share: float) -> None:
    first_s = stretched(factors, from_s, share * work_s)
    second_s = stretched(factors, from_s + first_s, work_s - share * work_s)
    assert first_s + second_s == pytest.approx(stretched(factors, from_s, work_s), rel=1e-9)
    assert stretched(factors, from_s, work_s) >= work_s * (1 - 1e-12)


@given(st.lists(spells, max_size=8), st.floats(0, 16))
def test_united_spells_hold_when_any_does_and_never_touch(drawn: list[Spell], at_s: float) -> None:
    found = united(drawn)
    assert any(a <= at_s < b for a, b in found) == any(a <= at_s < b for a, b in drawn)
    assert all(before[1] < after[0] for before, after in pairwise(found))


def test_a_cut_concerns_all_whose_route_crosses_the_link_in_its_direction() -> None:
    topology = chain(4)  # n0-n1-n2-n3
    (both, towards) = plan(topology, "kind: cut, link: n1-n2, at: 0 s", "kind: cut, link: n1-n2, towards: n2, at: 0 s")
    assert isinstance(both, Cut)
    assert isinstance(towards, Cut)
    pairs = [(a, b) for a in range(4) for b in range(4) if a != b]
    assert {pair for pair in pairs if severed(both, topology)(*pair)} == {
        (a, b) for a, b in pairs if (a < 2) != (b < 2)
    }
    assert {pair for pair in pairs if severed(towards, topology)(*pair)} == {(a, b) for a, b in pairs if a < 2 <= b}


def test_a_partition_leaves_those_alone_who_are_in_no_group() -> None:
    topology = chain(4)
    (fault,) = plan(topology, "kind: partition, groups: [[n0, n1], [n3]], at: 0 s")
    assert isinstance(fault, Partition)
    pairs = severed(fault, topology)
    assert pairs(0, 3)
    assert pairs(3, 1)
    assert not pairs(0, 1)
    assert not pairs(2, 3)
    assert not pairs(0, 2)


def test_a_fault_names_its_kind_and_target_in_the_words_of_the_plan() -> None:
    topology = chain(3)
    faults = plan(
        topology,
        "kind: crash, node: n1, at: 1 s",
        "kind: cut, link: n2-n1, towards: n2, at: 1 s",
        "kind: partition, groups: [[n0], [n1, n2]], at: 1 s",
    )
    assert [(fault.kind, fault.target) for fault in faults] == [
        ("crash", "n1"),
        ("cut", "n2-n1 towards n2"),
        ("partition", "n0 | n1, n2"),
    ]
    assert Crash(spells=(), rank=1).target == ""
