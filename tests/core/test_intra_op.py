"""Every thread that computes gives each kernel one thread, from its first kernel on: asked of OpenMP and MKL."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.support.root import ROOT

EVERYWHERE = {"loop": 1, "compute": 1, "data": 1}


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """By kind of thread, in a process whose new threads begin with 3, as on a machine of three cores."""
    settings = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    command = [sys.executable, "-m", "tests.support.intra_op_kinds", str(tmp_path_factory.mktemp("kinds"))]
    environment = settings | {"OMP_NUM_THREADS": "3"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
def test_a_new_thread_begins_with_as_many_as_the_machine_has(numbers: dict[str, Any]) -> None:
    """Otherwise the tests below could not fail."""
    assert numbers["a new thread"] == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("the simulator's loop", 1),
        ("the simulator's workers", 1),
        ("a simulation in a caller's thread", EVERYWHERE),
        ("a node started by hand", EVERYWHERE),
        ("a replay", EVERYWHERE),
        ("the torch backend's device", 1),
        ("the torch backend", EVERYWHERE),
        ("a sweep", EVERYWHERE),
        ("verify", 1),
    ],
)
def test_whatever_computes_has_one_thread_from_its_first_kernel_on(
    kind: str, expected: Any, numbers: dict[str, Any]
) -> None:
    assert numbers[kind] == expected


@pytest.mark.slow
def test_a_number_that_another_thread_sets_meanwhile_is_not_taken_over(numbers: dict[str, Any]) -> None:
    assert numbers["another thread's number"] == 1


@pytest.mark.slow
def test_callers_have_their_own_number_again_though_runs_in_two_threads_overlapped(numbers: dict[str, Any]) -> None:
    before, *after = numbers["restored"]
    assert after == [before] * 3
