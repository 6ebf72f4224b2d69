"""The loop of an algorithm: batches not yet had, a state at the end of each step, results that are applied late."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from simcluster.algorithms import Lag, Late, resumable, rounds, steps
from simcluster.errors import Left
from simcluster.workloads import Replica
from tests.core.algorithms.trained import WORKLOAD


class Kept:
    """A keeper and a memory in one: it notes what a checkpoint is told, and keeps every *every* steps."""

    def __init__(self, every: int = 1) -> None:
        self.every = every
        self.checkpoints: list[tuple[int, dict[str, Any]]] = []
        self.asked: list[dict[str, Any]] = []
        self.remembered: list[tuple[int, int]] = []

    def due(self, step: int) -> bool:
        return step % self.every == 0

    async def keep(
        self, step: int, batches: int, places: Sequence[int] | None, loose: bool, kept: Mapping[str, Any]
    ) -> None:
        self.asked.append({"batches": batches, "places": places, "loose": loose})
        if self.due(step):
            self.checkpoints.append((step, dict(kept)))

    def remember(self, step: int, batches: int, apart: int, kept: Mapping[str, Any]) -> None:
        self.remembered.append((step, apart))

    async def reached(self, step: int) -> None:
        pass


def replica_of(count: int = 7, *, done: int = 0, size: int = 1, **kept: Any) -> Replica:
    """Return a replica with *count* batches, *done* of them in a checkpoint that has *kept*."""
    replica = WORKLOAD.replica(0, size, 0, count)
    replica.done = replica.at = done
    replica.kept.update(kept)
    return replica


def done(body: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(body)


async def drawn(replica: Replica, size: int, **how: Any) -> list[tuple[int, list[int]]]:
    return [(step, [batch.step for batch in batches]) async for step, batches in rounds(replica, size, **how)]


def test_each_step_has_the_next_batch_and_is_counted_from_1() -> None:
    async def body() -> list[tuple[int, int]]:
        return [(step, batch.step) async for step, batch in steps(replica_of(3))]

    assert done(body()) == [(1, 0), (2, 1), (3, 2)]


def test_a_page_that_resumes_gets_the_batches_it_has_not_had() -> None:
    whole, rest = replica_of(5), replica_of(5, done=3)

    async def body(replica: Replica) -> list[tuple[int, torch.Tensor]]:
        return [(step, batch.inputs) async for step, batch in steps(replica)]

    expected, found = done(body(whole))[3:], done(body(rest))
    assert [step for step, _ in found] == [4, 5]
    assert all(torch.equal(a, b) for (_, a), (_, b) in zip(expected, found, strict=True))


def test_a_page_that_has_had_all_batches_takes_no_step() -> None:
    replica = replica_of(4, done=4)
    replica.keeper = kept = Kept()
    assert done(drawn(replica, 2)) == []
    assert kept.asked == [], "and it keeps nothing again"


def test_the_last_round_is_as_short_as_the_batches_that_are_left() -> None:
    assert done(drawn(replica_of(7), 3)) == [(3, [0, 1, 2]), (6, [3, 4, 5]), (7, [6])]
    assert done(drawn(replica_of(7, done=6), 3)) == [(7, [6])]


def test_a_batch_of_a_round_is_drawn_when_it_is_taken() -> None:
    replica = replica_of(4)

    async def body() -> None:
        async for step, batches in rounds(replica, 2):
            assert replica.ledger.drawn == step - 2
            next(batches)
            assert replica.ledger.drawn == step - 1
            next(batches)

    done(body())


def test_joined_batches_are_those_of_all_ranks_as_one() -> None:
    replica = replica_of(2, size=3)

    async def body() -> list[int]:
        return [len(batch.inputs) async for _, batch in steps(replica, joined=True)]

    assert done(body()) == [3 * replica.batch_size] * 2
    assert replica.ledger.joined


def test_a_checkpoint_has_the_page_s_variables_as_they_are_when_the_step_ends() -> None:
    replica = replica_of(3)
    replica.keeper = kept = Kept()

    async def body() -> None:
        state = resumable(replica, total=0, name="mine")
        async for step, _ in steps(replica, keep=state, loose=True, places=[0]):
            state.total += step

    done(body())
    assert kept.checkpoints == [(step, {"total": total, "name": "mine"}) for step, total in ((1, 1), (2, 3), (3, 6))]
    assert kept.asked == [{"batches": step, "places": [0], "loose": True} for step in (1, 2, 3)]


def test_variables_are_as_the_checkpoint_has_them_or_as_given() -> None:
    assert resumable(replica_of(), m=1, v=2) == SimpleNamespace(m=1, v=2)
    assert resumable(replica_of(done=3, m=7, v=8), m=1, v=2) == SimpleNamespace(m=7, v=8)
    assert resumable(replica_of(done=3, m=[7, 8]), m=[]) == SimpleNamespace(m=[7, 8])


def test_a_page_that_breaks_out_of_its_loop_keeps_nothing_of_that_step() -> None:
    replica = replica_of(5)
    replica.keeper = kept = Kept()

    async def body() -> None:
        async for step, _ in steps(replica):
            if step == 3:
                break

    done(body())
    assert [step for step, _ in kept.checkpoints] == [1, 2]


def test_the_end_of_each_step_is_told_and_with_late_results_that_of_the_last_applied() -> None:
    told: list[int] = []
    replica, lagging = replica_of(3), replica_of(4)
    replica.on_step = lagging.on_step = told.append
    done(drawn(replica, 1))
    assert told == [1, 2, 3]
    told.clear()
    done(late_sums(lagging, 2, []))
    assert told == [0, 0, 1, 2], "step 3 applies the result of step 1; the last two are applied after the loop"


def test_a_rank_that_was_told_to_leave_leaves_at_the_end_of_the_step() -> None:
    replica, seen = replica_of(5), list[int]()
    replica.is_to_leave = lambda: len(seen) == 2

    async def body() -> None:
        async for step, _ in steps(replica):
            seen.append(step)

    with pytest.raises(Left):
        done(body())
    assert seen == [1, 2]


async def late_sums(replica: Replica, depth: int, applied: list[tuple[int, int]], size: int = 1, **how: Any) -> None:
    """Send off each round's step in a task that takes a while; note (step at which it is applied, its result)."""
    lag = Lag(replica, depth, size=size, **how)

    async def later(step: int) -> int:
        await asyncio.sleep(0.001 * (9 - step))  # the newest would be there first
        return step

    async with asyncio.TaskGroup() as group:
        async for step, batches in rounds(replica, size, lag=lag):
            list(batches)
            lag.send_off(Late(step, [group.create_task(later(step))], f"note {step}"))
            for late in lag.due(step):
                assert late.note == (f"note {late.step}",)
                applied.append((step, *await late.results()))
        for late in lag.rest():
            applied.append((0, *await late.results()))


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_results_are_applied_in_order_exactly_depth_steps_later(depth: int) -> None:
    applied: list[tuple[int, int]] = []
    done(late_sums(replica_of(6), depth, applied))
    in_time = [(step + depth, step) for step in range(1, 7 - depth)]
    assert applied == in_time + [(0, step) for step in range(7 - depth, 7)]


def test_in_rounds_results_are_applied_depth_rounds_later_the_short_one_included() -> None:
    applied: list[tuple[int, int]] = []
    done(late_sums(replica_of(7), 1, applied, size=3))
    assert applied == [(6, 3), (7, 6), (0, 7)]


def test_a_checkpoint_waits_for_what_is_in_flight_and_keeps_it() -> None:
    replica, applied = replica_of(6), list[tuple[int, int]]()
    replica.keeper = kept = Kept(every=3)
    done(late_sums(replica, 2, applied))
    assert [(step, it["under_way"]) for step, it in kept.checkpoints] == [
        (3, [[2, "note 2", [2]], [3, "note 3", [3]]]),
        (6, [[5, "note 5", [5]], [6, "note 6", [6]]]),
    ]


def test_nothing_is_waited_for_where_no_checkpoint_is_due() -> None:
    replica, unfinished = replica_of(4), list[int]()
    replica.keeper = Kept(every=3)

    async def body() -> None:
        lag, never = Lag(replica, 9), asyncio.get_running_loop().create_future()
        async for step, _ in steps(replica, lag=lag):
            unfinished.append(lag.lead())
            lag.send_off(Late(step, [never]))
            if step == 3:
                never.set_result(None)

    done(body())
    assert unfinished == [0, 1, 2, 0]


def test_what_a_checkpoint_had_in_flight_is_applied_when_it_is_due() -> None:
    applied: list[tuple[int, int]] = []
    replica = replica_of(6, done=3, under_way=[[2, "note 2", [2]], [3, "note 3", [3]]])
    done(late_sums(replica, 2, applied))
    assert applied == [(4, 2), (5, 3), (6, 4), (0, 5), (0, 6)]


@pytest.mark.parametrize(("lacking", "landed"), [(True, [0, 0, 1, 2, 3]), (False, [0, 0, 3, 4, 5])])
def test_ranks_that_lose_one_resume_from_the_last_step_whose_result_is_in_the_weights(
    lacking: bool, landed: list[int]
) -> None:
    replica, applied = replica_of(5), list[tuple[int, int]]()
    replica.memory = kept = Kept()
    done(late_sums(replica, 2, applied, lacking=lacking))
    assert kept.remembered == [(step, 2) for step in landed], "gradients that are late are lacking, late means are not"
