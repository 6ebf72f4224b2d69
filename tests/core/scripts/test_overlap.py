"""Buckets of gradients travel while the backward pass goes on: closed forms of a step's time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.core.scripts.overlap import BATCH, WIDTH
from tests.core.scripts.running import pair, printed, run_script

SCRIPT = Path(__file__).with_name("overlap.py")
FLOPS = 1e9
PRODUCT_S = 2 * BATCH * WIDTH * WIDTH / FLOPS  # one product of (batch, width) and (width, width)


def step_times_s(bandwidth_bps: float, tmp_path: Path) -> list[float]:
    """Return the times of the script's steps on two nodes, by its own clock."""
    run_script(SCRIPT, tmp_path / "run", pair(bandwidth=f"{bandwidth_bps:.0f} bps"))
    return [float(line.split()[2]) for line in printed(tmp_path / "run")]


def bucket_s(bandwidth_bps: float) -> float:
    """Return the time of a ring of two with a bucket of WIDTH x WIDTH numbers: two rounds, each with half of it."""
    return 2 * (WIDTH * WIDTH / 2 * 4 * 8) / bandwidth_bps


@pytest.mark.parametrize("bandwidth_bps", [1e10, 1e6, 1.5e9], ids=["compute", "network", "between"])
def test_a_step_takes_what_compute_and_buckets_leave_of_each_other(bandwidth_bps: float, tmp_path: Path) -> None:
    found = step_times_s(bandwidth_bps, tmp_path)
    travel_s = bucket_s(bandwidth_bps)
    # Forward: two products. Backward: two of the last layer, then its bucket leaves; one of the first, then the other.
    # The second bucket follows the first, as on one stream.
    second_s = max(4 * PRODUCT_S + travel_s, 5 * PRODUCT_S)
    assert found[-1] == pytest.approx(second_s + travel_s, rel=0, abs=1e-9)
