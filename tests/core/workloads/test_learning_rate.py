"""The rates of a schedule: closed forms, with the arithmetic, and torch's own schedulers as a second source."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch.optim.lr_scheduler import CosineAnnealingLR, StepLR

from simcluster.errors import UsageError
from simcluster.workloads import quadratic, sgd
from simcluster.workloads.learning_rate import LearningRateSchedule, completed
from simcluster.workloads.schedules import advance, load_schedule, schedule_state, with_schedule


def rates(run_steps: int, **schedule: Any) -> list[float]:
    optimizer = sgd(0.4)([torch.nn.Parameter(torch.zeros(1))])
    scheduler = LearningRateSchedule(**schedule).scheduler(optimizer, run_steps)
    found = []
    for _ in range(run_steps):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return found


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        # The warm-up takes 1/4, 2/4, 3/4 and 4/4 of 0.4; then the rate stays.
        ({"kind": "constant", "warmup_steps": 4}, [0.1, 0.2, 0.3, 0.4, 0.4, 0.4]),
        # 2 of warm-up, then 4 left: 0.4, and falls by (0.4 - 0.2) / 4 = 0.05 a step.
        ({"kind": "linear", "warmup_steps": 2, "min_learning_rate": 0.2}, [0.2, 0.4, 0.4, 0.35, 0.3, 0.25]),
        # cos(0, pi/4, pi/2, 3 pi/4) = 1, 0.70711, 0, -0.70711: 0.1 + 0.3 (1 + cos) / 2.
        (
            {"kind": "cosine", "warmup_steps": 2, "min_learning_rate": 0.1},
            [0.2, 0.4, 0.4, 0.3560660171779821, 0.25, 0.14393398282201788],
        ),
        # A quarter every 2 steps: 0.4, 0.1, 0.025, of which the last is below the floor.
        (
            {"kind": "step", "gamma": 0.25, "every": 2, "min_learning_rate": 0.03},
            [0.4, 0.4, 0.1, 0.1, 0.03, 0.03],
        ),
        # A schedule of 2 steps in a run of 6 ends at its floor, and stays there.
        ({"kind": "linear", "steps": 2}, [0.4, 0.2, 0.0, 0.0, 0.0, 0.0]),
    ],
    ids=lambda value: value.get("kind") if isinstance(value, dict) else "",
)
def test_the_rate_of_each_step_is_the_closed_form(schedule: dict[str, Any], expected: list[float]) -> None:
    assert rates(6, **schedule) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("schedule", "theirs"),
    [
        ({"kind": "cosine", "min_learning_rate": 0.05}, lambda one: CosineAnnealingLR(one, 20, eta_min=0.05)),
        ({"kind": "step", "gamma": 0.5, "every": 3}, lambda one: StepLR(one, 3, 0.5)),
    ],
)
def test_without_warm_up_the_rates_are_those_of_torch(schedule: dict[str, Any], theirs: Any) -> None:
    optimizer = sgd(0.4)([torch.nn.Parameter(torch.zeros(1))])
    scheduler, expected = theirs(optimizer), []
    for _ in range(20):
        expected.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    assert rates(20, **schedule) == pytest.approx(expected, rel=1e-9)


def test_a_server_of_four_ranks_moves_on_once_in_four_pushes_also_after_a_checkpoint() -> None:
    make = with_schedule(
        sgd(0.4),
        lambda optimizer: LearningRateSchedule(kind="linear").scheduler(optimizer, 4),
    )

    def one() -> Any:
        return make([torch.nn.Parameter(torch.zeros(1))])

    optimizer, seen = one(), []
    for push in range(16):  # 4 steps of 4 ranks: 0.4, 0.3, 0.2, 0.1, four times each
        seen.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        advance(optimizer, 1, 4)
        if push == 5:  # in the middle of a round
            state, before = schedule_state(optimizer), optimizer.param_groups[0]["lr"]
            optimizer = one()
            assert state is not None
            load_schedule(optimizer, state)
            optimizer.param_groups[0]["lr"] = before  # as load_optimizer does
    assert seen == pytest.approx([rate for rate in (0.4, 0.3, 0.2, 0.1) for _ in range(4)], rel=1e-12)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("cosin", "did you mean 'cosine'?"),
        ({"warmup_steps": 3}, "a mapping with a kind"),
        ({"kind": "cosine", "warmup": 3}, "did you mean 'warmup_steps'?"),
        ({"kind": "constant", "gamma": 0.5}, "a key of constant"),
        ({"kind": "step", "gamma": 0.5}, "a mapping with every, which step needs"),
        ({"kind": "cosine", "warmup_steps": -1}, "greater than or equal to 0"),
    ],
)
def test_what_is_no_schedule_says_what_would_be(given: Any, expected: str) -> None:
    with pytest.raises(ValidationError) as error:
        completed(given)
    assert expected in str(error.value)


def test_a_group_that_stays_at_rate_0_is_scheduled_with_the_others() -> None:
    groups = [{"params": [torch.nn.Parameter(torch.ones(1))], "lr": rate} for rate in (0.0, 0.1)]
    optimizer = torch.optim.SGD(groups)
    LearningRateSchedule(kind="step", gamma=0.5, every=1, min_learning_rate=0.05).scheduler(optimizer, 4)
    optimizer.step()
    assert [group["lr"] for group in optimizer.param_groups] == [0.0, 0.1]


def test_a_floor_above_the_peak_and_a_warm_up_longer_than_the_run_are_refused() -> None:
    with pytest.raises(UsageError, match=r"min_learning_rate: found 0.2, expected at most 0.1"):
        quadratic(learning_rate=0.1, schedule={"kind": "cosine", "min_learning_rate": 0.2}).replica(0, 1, 0, 5)
    with pytest.raises(UsageError, match=r"warmup_steps: found 6, expected at most 5, the steps of the run"):
        LearningRateSchedule(warmup_steps=6).check_fits(5)
    with pytest.raises(UsageError, match=r"warmup_steps: found 6, expected at most 3, the steps of the schedule"):
        LearningRateSchedule(kind="cosine", warmup_steps=6, steps=3).check_fits(9)
