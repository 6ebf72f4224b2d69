"""The members of the next group, the state that they go on from, and where the last group's messages end."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcluster.errors import ENDED
from simcluster.fault_plans.kinds import GIVEN_UP, cut_off
from simcluster.regroup.mail import Ear
from simcluster.regroup.membership_view import MembershipFacts, form, newest
from simcluster.regroup.messages import CaptureName, mark_of
from simcluster.transport import ANY, Transport
from tests.support.clusters import run, star

CUT = cut_off(5.0)


def facts(
    rank: int, size: int, *, dead: tuple[int, ...] = (), cut: tuple[tuple[int, int], ...] = ()
) -> MembershipFacts:
    found = MembershipFacts(rank, size)
    found.merge([(one, 0) for one in dead], [((a, 0), (b, 0)) for a, b in cut])
    return found


def test_the_dead_and_those_who_have_ended_are_left_out() -> None:
    known = facts(1, 4, dead=(0,))
    known.lose(3, ENDED, 0)
    assert form(known, range(4)) == ([1, 2], {})


def test_of_two_that_are_cut_off_from_each_other_the_lower_one_stays() -> None:
    assert form(facts(0, 4, cut=((1, 3),)), range(4)) == ([0, 1, 2], {3: 1})


def test_who_is_cut_off_from_one_that_is_left_out_itself_stays() -> None:
    # 1 cannot reach 0, which leads; 2 cannot reach 1, which does not matter any more
    assert form(facts(0, 3, cut=((0, 1), (1, 2))), range(3)) == ([0, 2], {1: 0})


def test_who_asks_to_be_let_in_pushes_no_member_out() -> None:
    known = facts(1, 3)
    known.merge([(0, 0)], [])
    known.comes(0, 1)
    known.merge([], [((0, 1), (2, 0))])
    assert form(known, range(3)) == ([1, 2], {0: 2})


@pytest.mark.slow
@given(st.integers(1, 6), st.data())
def test_whoever_goes_on_lives_and_can_reach_all_others_of_the_group(size: int, data: st.DataObject) -> None:
    ranks = st.integers(0, size - 1)
    me = data.draw(ranks)
    dead = data.draw(st.sets(ranks.filter(lambda rank: rank != me)))
    cut = data.draw(st.lists(st.tuples(ranks, ranks).filter(lambda pair: pair[0] < pair[1])))
    known = facts(me, size, dead=tuple(sorted(dead)), cut=tuple(cut))
    included, excluded = form(known, range(size))
    assert me in included
    assert sorted([*included, *excluded, *dead]) == list(range(size))
    assert not any(known.parted(a, b) for a in included for b in included)
    assert all(known.parted(rank, because) and because in included for rank, because in excluded.items())


def test_a_loss_is_of_one_life_and_what_is_known_of_it_is_no_news() -> None:
    known = MembershipFacts(0, 3)
    assert known.lose(2, "its process is gone", 0)
    assert not known.lose(2, "its process is gone", 0)
    assert known.is_dead(2)
    known.comes(2, 1)
    assert not known.is_dead(2), "the new one lives"
    assert not known.merge([(2, 0)], []), "somebody hears late of the old one's death"
    assert known.lose(2, "gone again", 1)
    assert known.is_dead(2)


def test_an_old_loss_that_is_heard_late_is_not_read_as_the_loss_of_the_new_life() -> None:
    known = MembershipFacts(2, 3)
    known.let_in([], [1, 0, 0])  # the leader's decision overtook both the rank's JoinRequest and the news of its crash
    count = known.count
    assert not known.lose(0, "crashed by the fault plan", 0)
    assert not known.is_dead(0)
    assert known.count == count
    assert known.lose(0, "crashed by the fault plan", 1)
    assert known.is_dead(0)


def test_a_join_of_a_life_that_is_over_takes_no_later_one_back() -> None:
    known = MembershipFacts(0, 3)
    known.merge([(1, 2)], [])
    assert not known.comes(1, 1)
    assert known.lives == [0, 2, 0]
    assert known.is_dead(1)


def test_who_may_live_on_out_of_reach_is_not_dead() -> None:
    for reason in (CUT, GIVEN_UP):
        known = MembershipFacts(1, 3)
        known.lose(0, reason, 0)
        assert known.parted(0, 1)
        assert known.is_lost(0)
        assert not known.is_dead(0)


A, B, C = CaptureName(0, -1, 4), CaptureName(0, -1, 5), CaptureName(0, -1, 6)


def test_the_last_step_that_all_hold_is_gone_on_from() -> None:
    assert newest({0: [A, B], 1: [B, C], 2: [B]}) == (B, [0, 1, 2])


def test_whoever_holds_nothing_is_given_what_the_others_agree_on() -> None:
    assert newest({0: [A, B], 1: [], 2: [A]}) == (A, [0, 2])
    assert newest({0: [], 1: []}) is None


def test_steps_of_different_groups_are_different_though_their_numbers_are_equal() -> None:
    # rank 1 has gone on alone from step 5: its step 6 is not that of the others
    assert newest({0: [B, C], 1: [B, CaptureName(1, 1, 6)]}) == (B, [0, 1])


def test_a_group_that_has_gone_on_is_not_set_back_to_what_it_has_forgotten() -> None:
    later, last = CaptureName(3, 1, 9), CaptureName(3, 1, 10)
    assert newest({0: [B, C], 1: [later, last], 2: [later]}) == (later, [1, 2])


@given(st.dictionaries(st.integers(0, 5), st.lists(st.sampled_from([A, B, C]), max_size=3), min_size=1))
def test_what_is_chosen_is_held_by_all_holders_and_nothing_newer_is(held: dict[int, list[CaptureName]]) -> None:
    found = newest(held)
    common = [set(names) for names in held.values() if names]
    if found is None or not set.intersection(*common):
        return
    best, holders = found
    assert holders == sorted(rank for rank, names in held.items() if best in names)
    assert all(best in names for names in common)
    assert not any(all(other in names for names in common) for other in (A, B, C) if other > best)


def test_a_full_inbox_is_emptied_up_to_the_mark_of_the_group_that_is_awaited() -> None:
    """Not up to that of the group which is over: messages to that one follow it, and a word comes after them."""

    async def speaker(node: Transport) -> None:
        for tag in (mark_of(1, 0), "1.0:x", "1.0:x", mark_of(2, 0), "2.0:x"):
            await node.send(1, tag, "x" * 100)

    async def listener(node: Transport) -> tuple[str, str]:
        ended = asyncio.Event()
        ear = Ear(node, MembershipFacts(1, 2, 0), lambda message: None, lambda lost: None, ended.set)
        ear.drain([0], 2)
        await ended.wait()
        following = await node.recv(0, ANY)
        return ear.marks[0, 0], following.tag

    assert run(star(2), speaker, listener, inbox_bytes=64)[1] == (mark_of(2, 0), "2.0:x")
