"""Programs by chance: the first seeds, and defects planted into what computes schedules."""

from __future__ import annotations

from typing import Any

import pytest
from simcluster_backends.sim.lookahead import schedule_entrants
from simcluster_backends.sim.lookahead.schedule_entrants import ScheduleEntrants
from simcluster_backends.sim.lookahead.suspended_ranks import SuspendedRanks

from tools.lookahead_by_chance.compare import compare
from tools.lookahead_by_chance.draw import draw
from tools.lookahead_by_chance.smaller import shrink

SEEDS = 100


@pytest.mark.slow
def test_programs_are_the_same_with_computed_schedules_and_message_by_message() -> None:
    compared = [compare(draw(seed)) for seed in range(SEEDS // 2)]
    assert {seed: each.differences for seed, each in enumerate(compared) if each.differences} == {}
    assert sum(each.skipped > 0 for each in compared) >= 5


def test_a_seed_is_the_same_program_again() -> None:
    assert draw(5) == draw(5) != draw(6)


def found() -> str:
    """Return the names of the differences of the first seed that has any."""
    return next((str(list(each)) for seed in range(SEEDS) if (each := compare(draw(seed)).differences)), "")


@pytest.mark.slow
def test_it_finds_ranks_that_go_on_in_rank_order(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_rank(course: object, over: int, starts_s: Any, entered: object) -> list[int]:
        return sorted(range(len(starts_s)), key=starts_s.tolist().__getitem__)

    monkeypatch.setattr(schedule_entrants, "leaving_order", by_rank)
    assert "skipping: acts" in found()


def test_it_finds_traffic_that_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule_entrants, "record", lambda *_: None)
    assert "skipping: traffic" in found()


def test_it_finds_ranks_that_are_held_whatever_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ScheduleEntrants, "_is_harmless", lambda self, event: True)
    assert "declining: spans" in found()


@pytest.mark.slow
def test_a_program_that_differs_is_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SuspendedRanks, "note", lambda self, at_s, number: None)
    program = draw(0)
    small = shrink(program, name := next(iter(compare(program).differences)))
    assert name in compare(small).differences
    assert len(small.phases) == 1 < len(program.phases)
