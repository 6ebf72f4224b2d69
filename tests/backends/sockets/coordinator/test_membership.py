"""Ranks: dense when an epoch begins, one for each, and nobody's changes under a run. Time is only what is handed in."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from simcluster_backends.sockets.coordinator.membership import PRESENT, State, WorkerMembership

NAMES = st.sampled_from("abcdef")


class Lives(RuleBasedStateMachine):
    """Workers come, beat, fall silent, leave and come back, while epochs begin and end."""

    def __init__(self) -> None:
        super().__init__()
        self.membership, self.now_s = WorkerMembership(dead_s=5.0), 0.0
        self.world: dict[str, int] = {}

    @rule(name=NAMES)
    def register(self, name: str) -> None:
        before = self.membership.workers.get(name)
        worker = self.membership.register(name, self.now_s)
        assert worker.state in PRESENT
        if before is not None and before.rank is not None:
            assert worker.rank == before.rank, "who comes back has the rank that it had"
        if self.membership.running and name not in self.world:
            assert (worker.rank, worker.state) == (None, State.WAITING)

    @rule(name=NAMES)
    def heartbeat(self, name: str) -> None:
        there = name in self.membership.workers and self.membership.workers[name].state in PRESENT
        assert self.membership.heartbeat(name, self.now_s) == there

    @rule(name=NAMES)
    def leave(self, name: str) -> None:
        self.membership.gone(name, State.LEFT)

    @rule(seconds=st.floats(0.0, 7.0))
    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        silent = {
            w.name for w in self.membership.workers.values() if w.state in PRESENT and self.now_s - w.heard_s > 5.0
        }
        assert set(self.membership.expire(self.now_s)) == silent
        assert all(self.membership.workers[name].state is State.LOST for name in silent)

    @rule(names=st.lists(NAMES, unique=True, min_size=1))
    def begin(self, names: list[str]) -> None:
        epoch = self.membership.epoch
        self.world = self.membership.begin(self.now_s, names)
        assert self.membership.epoch == epoch + 1
        assert self.world == {name: rank for rank, name in enumerate(names)}

    @rule()
    def end(self) -> None:
        self.membership.end()

    @invariant()
    def nobody_shares_a_rank(self) -> None:
        ranks = [worker.rank for worker in self.membership.workers.values() if worker.rank is not None]
        assert len(ranks) == len(set(ranks))

    @invariant()
    def nobodys_rank_changes_while_an_epoch_runs(self) -> None:
        if self.membership.running:
            ranks = {name: w.rank for name, w in self.membership.workers.items() if w.rank is not None}
            assert ranks == self.world

    @invariant()
    def the_alive_have_ranks(self) -> None:
        alive = self.membership.alive()
        ranks = [worker.rank for worker in alive]
        assert None not in ranks
        assert ranks == sorted(rank for rank in ranks if rank is not None)


TestLives = Lives.TestCase
TestLives.settings = settings(max_examples=40, stateful_step_count=30)


@given(st.floats(0.0, 90.0), st.floats(0.001, 90.0))
def test_a_worker_is_lost_exactly_when_it_was_silent_for_longer_than_allowed(silent_s: float, dead_s: float) -> None:
    membership = WorkerMembership(dead_s)
    membership.register("a", 0.0)
    assert membership.expire(silent_s) == (["a"] if silent_s > dead_s else [])


def test_a_new_name_that_sorts_first_changes_nobodys_rank() -> None:
    # Ranks by sorted name, which looks consistent, gives everybody another one here.
    membership = WorkerMembership(5.0)
    assert [membership.register(name, 0.0).rank for name in ("m", "z", "a")] == [0, 1, 2]


def test_those_of_a_runs_list_are_expected_with_their_rank_until_they_are_there() -> None:
    membership = WorkerMembership(5.0)
    membership.register("b", 0.0)
    membership.begin(1.0, ["a", "b", "c"])
    assert [(w.name, w.rank, w.state) for w in membership.workers.values()] == [
        ("a", 0, State.EXPECTED),
        ("b", 1, State.ALIVE),
        ("c", 2, State.EXPECTED),
    ]
    assert not membership.heartbeat("a", 2.0), "it has to register first"
    assert membership.register("a", 2.0).rank == 0
    assert [worker.name for worker in membership.alive()] == ["a", "b"]


@pytest.mark.parametrize("gone", ["a", "b"])
def test_a_gap_is_not_filled_by_a_newcomer(gone: str) -> None:
    membership = WorkerMembership(5.0)
    for name in ("a", "b", "c"):
        membership.register(name, 0.0)
    membership.begin(0.0, ["a", "b", "c"])
    membership.gone(gone, State.LEFT)
    assert membership.register("d", 0.0).rank is None
    membership.end()
    assert membership.workers["d"].rank == 3
