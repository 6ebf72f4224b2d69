"""Steps of scripts without an optimizer: rounds of collectives, known while they run."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

import simcluster
from simcluster.scripts.rank.gloo_group import CallTrace, GlooGroup
from tests.core.scripts.running import pair, printed, run_script

ROUNDS = """
import sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
for _ in range(4):
    dist.broadcast(torch.ones(2), 0)
    dist.scatter(torch.ones(2), [torch.ones(2)] * 2 if dist.get_rank() == 0 else None)
for step in range(1, 6):
    told = [None] * 2
    dist.all_gather_object(told, "two calls of one line")
    dist.all_reduce(torch.ones(2))
    print("round", step)
"""

OPTIMIZED = """
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(7):
    dist.all_reduce(torch.ones(2))
    optimizer.step()
"""


@pytest.fixture
def rounds(tmp_path: Path) -> Path:
    (tmp_path / "rounds.py").write_text(ROUNDS)
    return tmp_path / "rounds.py"


def test_a_step_without_an_optimizer_is_a_round_of_collectives(rounds: Path, tmp_path: Path) -> None:
    run = run_script(rounds, tmp_path / "run", pair())
    assert run.summary["steps"] == 5  # neither the 4 broadcasts and scatters nor the 10 calls of all_gather_object


def test_calls_under_gloo_are_counted_before_they_are_made() -> None:
    counted: list[str] = []
    link: Any = SimpleNamespace(tell=lambda message: None, on_call=counted.append)
    options = SimpleNamespace(store=HashStore(), group_rank=0, group_size=1, timeout=timedelta(seconds=60))
    group = GlooGroup(link, CallTrace(link), options, [0], is_local=True)
    group.broadcast([torch.ones(2)], dist.BroadcastOptions()).wait()
    group.allreduce([torch.ones(2)], dist.AllreduceOptions()).wait()
    assert counted == ["broadcast", "all_reduce"]
    with pytest.raises(TypeError):
        group.allgather()
    assert counted[2:] == ["all_gather"]


def test_faults_at_a_step_and_the_end_of_steps_act_on_rounds(rounds: Path, tmp_path: Path) -> None:
    with simcluster.faults() as plan:
        plan.hang("b", at_step=2, for_s=0.5)
        run = run_script(rounds, tmp_path / "run", pair(), stop={"steps": 3})
    assert printed(tmp_path / "run") == ["round 1", "round 2", "round 3"]
    assert run.summary["steps"] == 3
    (hang,) = run.summary["faults"]
    assert hang["plan"]["at_step"] == 2
    assert run.summary["elapsed_s"] >= 0.5  # the third round waited for it


def test_an_optimizer_that_is_made_later_has_the_steps(rounds: Path, tmp_path: Path) -> None:
    rounds.write_text(ROUNDS + OPTIMIZED)
    run = run_script(rounds, tmp_path / "run", pair())
    assert run.summary["steps"] == 7  # not the 4 rounds that had ended before
