"""A few of the trials of `make interrupts`, one of each kind of moment."""

from __future__ import annotations

import pytest

from tools.interrupts.case import draw
from tools.interrupts.trial import BEFORE_OURS, IN_SITE, run_trial

SEEDS = [
    (7, "sim", "run", "start"),
    (36, "sim", "run", "training"),
    (0, "sim", "run", "import"),
    (9, "sim", "run", "checkpoint"),
    (6, "sim", "sweep", "workers"),
    (11, "sockets", "run", "nodes"),
]


@pytest.mark.parametrize(("file", "is_early"), [("__init__", True), ("__main__", True), ("cli", False)])
def test_a_traceback_is_pythons_own_only_before_our_first_line(file: str, is_early: bool) -> None:
    frames = f'  File "/bin/simcluster", line 5, in <module>\n    x\n  File "/a/simcluster/{file}.py", line 7\n    y\n'
    said = f"Traceback (most recent call last):\n{frames}KeyboardInterrupt\n"
    assert bool(BEFORE_OURS.search(said)) == is_early


def test_so_is_the_end_of_one_that_still_sets_up_its_path() -> None:
    said = "Fatal Python error: init_import_site: Failed to import the site module\n  File\nKeyboardInterrupt\n"
    assert IN_SITE.fullmatch(said)
    assert not IN_SITE.fullmatch(said + "more")


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "backend", "command", "moment"), SEEDS)
def test_a_ctrl_c_at_a_random_moment_ends_in_order(seed: int, backend: str, command: str, moment: str) -> None:
    case = draw(seed, backend)
    assert (case.command, case.moment) == (command, moment), "other draws than these are meant: choose seeds again"
    found = run_trial(seed, backend)
    assert found.problems == []
