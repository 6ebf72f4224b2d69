"""What the command says at a run's end of those who did not take part to it, and of how it went on."""

from __future__ import annotations

import re
from typing import Any

import pytest

TINY = ("--set", "workload=quadratic", "--set", "stop.steps=4", "--no-report")


@pytest.mark.slow
def test_it_says_who_is_missing_and_how_the_group_was_formed_anew(command: Any) -> None:
    crash = "faults=[{kind: crash, node: pi4, at: 1 us}]"
    code, out, _ = command("run", "quickstart", *TINY, "--algorithm", "all_reduce_dp", "--set", crash)
    assert code == 0
    assert "  without pi4: crashed by the fault plan\n" in out
    assert "  regrouped at step 0: mini1, mini2, mini3, pi5\n" in out


def test_it_says_where_a_run_began_again_and_after_what(command: Any) -> None:
    crash = "faults=[{kind: crash, node: pi4, at: 1 us}]"
    code, out, _ = command("run", "quickstart", *TINY, "--algorithm", "zero", "--set", crash, "--max-restarts", "1")
    assert code == 0
    lost = "PeerLost: rank 4 (pi4) is lost: crashed by the fault plan"
    told = rf"^  restarted from the start after \S+ [mu]s, not counted above: {re.escape(lost)}$"
    assert re.search(told, out, re.MULTILINE)
    assert "without" not in out


def test_of_a_run_without_losses_it_says_nothing_of_them(command: Any) -> None:
    code, out, _ = command("run", "quickstart", *TINY)
    assert code == 0
    assert not any(words in out for words in ("without", "regrouped", "restarted"))
