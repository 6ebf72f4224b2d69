"""A run that would have been far quicker with another order or other batches ends with a line that says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simcluster import run
from tests.support.clusters import uneven_star

GPT = {"name": "gpt", "layers": 2, "width": 16, "heads": 2, "context": 8, "batch_size": 32}


def shelf(*gflops: float) -> dict[str, Any]:
    """Workers n0, n1, ... of these GFLOP/s around a switch."""
    return uneven_star(*(f"{rate} GFLOP/s" for rate in gflops), bandwidth="10 Gbps", latency="10 us")


def ended(folder: Path, *gflops: float, workload: dict[str, Any] = GPT, **keys: Any) -> tuple[list[str], float]:
    """Return the notes of a run of three steps, and the seconds of a step."""
    given = {"topology": shelf(*gflops), "workload": workload, "stop": {"steps": 3}, "numerics": "none", **keys}
    found = run(given, out=folder, report=False)
    return list(found.summary.get("notes", [])), found.summary["elapsed_s"] / 3


@pytest.mark.slow
def test_a_far_better_order_is_offered_with_the_time_that_it_then_takes(tmp_path: Path) -> None:
    notes, now_s = ended(tmp_path / "file", 0.01, 1, 1, algorithm={"name": "pipeline"})
    better, then_s = ended(tmp_path / "auto", 0.01, 1, 1, algorithm={"name": "pipeline", "order": "auto"})
    assert better == []
    assert len(notes) == 1
    assert notes[0].startswith("with order: auto a step would take ")
    assert notes[0].endswith(" times faster: --set algorithm.order=auto")
    assert float(notes[0].partition(" times faster")[0].split()[-1]) == pytest.approx(now_s / then_s, rel=0.05)


@pytest.mark.slow
def test_a_share_by_speed_is_offered_where_the_slowest_node_is_most_of_a_step(tmp_path: Path) -> None:
    shared = {**GPT, "batch_size": {"total": 96, "by": "device"}}
    notes, now_s = ended(tmp_path / "equal", 0.01, 0.1, 0.1, algorithm={"name": "all_reduce_dp"})
    better, then_s = ended(tmp_path / "shared", 0.01, 0.1, 0.1, algorithm={"name": "all_reduce_dp"}, workload=shared)
    assert better == []
    assert len(notes) == 1
    assert notes[0].endswith(" times faster: --set 'workload.batch_size={total: 96, by: device}'")
    assert float(notes[0].partition(" times faster")[0].split()[-1]) == pytest.approx(now_s / then_s, rel=0.05)


@pytest.mark.parametrize(
    ("gflops", "keys"),
    [
        ((1, 1, 1), {"algorithm": {"name": "pipeline"}}),
        ((0.01, 1, 1), {"algorithm": {"name": "pipeline", "order": ["n0", "n1"]}}),
        ((0.1, 0.1, 0.1), {"algorithm": {"name": "all_reduce_dp"}}),
        ((0.08, 0.1, 0.1), {"algorithm": {"name": "all_reduce_dp"}}),
        ((100, 1000, 1000), {"algorithm": {"name": "all_reduce_dp"}}),
        ((0.01, 0.1, 0.1), {"algorithm": {"name": "edp"}}),
    ],
    ids=["equal nodes", "an order is given", "equal batches fit", "not far", "the network decides", "no weighing"],
)
def test_there_is_no_hint_without_a_gain(gflops: tuple[float, ...], keys: dict[str, Any], tmp_path: Path) -> None:
    assert ended(tmp_path, *gflops, **keys)[0] == []
