"""Nodes started by hand, with no variable that says how many threads, end with the simulator's bits."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.levels import sample_of
from tools.by_hand import both


@pytest.mark.slow
@pytest.mark.parametrize("portable", sample_of([True, False], 2))
def test_nodes_started_by_hand_end_with_the_simulators_bits(portable: bool, tmp_path: Path) -> None:
    """Products of 256 x 784 x 512 are large enough for OpenMP to part them. All of them: `make by-hand`."""
    simulated, real, said = both(tmp_path, "all_reduce_dp", 512, 256, portable=portable)
    assert simulated == real
    assert len(simulated) == 2
    # Who starts a node sees whom it waits for, and how it goes.
    for rank, (name, other) in enumerate((("a", "b"), ("b", "a"))):
        told = [
            "looks for a run at 127.0.0.1:",
            f"is rank {rank} of 2; waits for {other}",
            "begins, connected to 1 node",
        ]
        places = [said[name].find(f"INFO {name}: {words}") for words in (*told, "ended after")]
        assert places == sorted(places)
        assert min(places) >= 0
