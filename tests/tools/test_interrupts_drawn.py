"""A few of the trials of `make interrupts`, one of each kind of moment."""

from __future__ import annotations

import pytest

from tests.support.levels import sample_of
from tools.interrupts.case import draw
from tools.interrupts.trial import BEFORE_OURS, run_trial

SEEDS = [
    (7, "sim", "run", "start"),
    (36, "sim", "run", "training"),
    (0, "sim", "run", "import"),
    (9, "sim", "run", "checkpoint"),
    (6, "sim", "sweep", "workers"),
    (11, "sockets", "run", "nodes"),
    (15, "sockets", "run", "training"),
]


@pytest.mark.parametrize(("file", "is_early"), [("__init__", True), ("__main__", True), ("cli", False)])
def test_a_traceback_is_pythons_own_only_before_our_first_line(file: str, is_early: bool) -> None:
    frames = f'  File "/bin/simcluster", line 5, in <module>\n    x\n  File "/a/simcluster/{file}.py", line 7\n    y\n'
    said = f"Traceback (most recent call last):\n{frames}KeyboardInterrupt\n"
    assert bool(BEFORE_OURS.search(said)) == is_early


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "backend", "command", "moment"), sample_of(SEEDS, 3))
def test_a_ctrl_c_at_a_random_moment_ends_in_order(seed: int, backend: str, command: str, moment: str) -> None:
    case = draw(seed, backend)
    assert (case.command, case.moment) == (command, moment), "other draws than these are meant: choose seeds again"
    found = run_trial(seed, backend)
    assert found.problems == []
