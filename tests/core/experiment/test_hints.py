"""A run that would have been far quicker with another order or other batches ends with a line that says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simcluster import run
from simcluster.experiment import hints
from simcluster.runs import words
from simcluster.topology import Topology
from tests.support.clusters import uneven_star

GPT = {"name": "gpt", "layers": 2, "width": 16, "heads": 2, "context": 8, "batch_size": 32}


def shelf(*gflops: float) -> dict[str, Any]:
    """Workers n0, n1, ... of these GFLOP/s around a switch."""
    return uneven_star(*(f"{rate} GFLOP/s" for rate in gflops), bandwidth="10 Gbps", latency="10 us")


def ended(folder: Path, *gflops: float, workload: dict[str, Any] = GPT, **keys: Any) -> tuple[list[str], float]:
    """Return the notes of a run of three steps, and the seconds of a step."""
    given = {
        "topology": gflops and shelf(*gflops),
        "workload": workload,
        "stop": {"steps": 3},
        "numerics": "none",
        **keys,
    }
    found = run(given, out=folder, report=False)
    return list(found.summary.get("notes", [])), found.summary["elapsed_s"] / found.summary["steps"]


def _told(then_s: float, now_s: float) -> str:
    """The times of a run of as few steps are those that the suggested setting gives, not estimates."""
    times = f"{words.seconds(then_s)} in place of {words.seconds(now_s)}"
    return f"{times}, {now_s / then_s:.3g} times faster: --set "


@pytest.mark.slow
def test_a_far_better_order_is_offered_with_the_time_that_it_then_takes(tmp_path: Path) -> None:
    notes, now_s = ended(tmp_path / "file", 0.01, 1, 1, algorithm={"name": "pipeline"})
    better, then_s = ended(tmp_path / "auto", 0.01, 1, 1, algorithm={"name": "pipeline", "order": "auto"})
    assert better == []
    assert len(notes) == 1
    assert notes[0].startswith("with order: auto a step would take ")
    assert notes[0].endswith(" times faster: --set algorithm.order=auto")
    assert notes[0].split(" a step would take ")[1].startswith(_told(then_s, now_s))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["all_reduce_dp", "edp", "ssp", "fedbuff"])
@pytest.mark.parametrize("slow", [0, 2])
def test_a_share_by_speed_is_offered_where_the_slowest_node_is_most_of_a_step(
    name: str, slow: int, tmp_path: Path
) -> None:
    shared, gflops = {**GPT, "batch_size": {"total": 96, "by": "device"}}, [0.1, 0.1, 0.1]
    gflops[slow] = 0.01
    notes, now_s = ended(tmp_path / "equal", *gflops, algorithm={"name": name})
    better, then_s = ended(tmp_path / "shared", *gflops, algorithm={"name": name}, workload=shared)
    assert better == []
    assert len(notes) == 1
    assert notes[0].endswith(" times faster: --set 'workload.batch_size={total: 96, by: device}'")
    assert notes[0].split(" a step would take ")[1].startswith(_told(then_s, now_s))


def two_sites(schedule: str, steps: int = 3) -> dict[str, Any]:
    """Sixteen nodes at two sites that are 20 ms apart, and a small model."""
    topology = Topology.two_sites(8, 8)
    model = {"name": "mnist_mlp", "hidden": 12}
    algorithm = {"name": "all_reduce_dp", "schedule": schedule}
    return {"topology": topology.document, "workload": model, "algorithm": algorithm, "stop": {"steps": steps}}


@pytest.mark.slow
def test_a_faster_schedule_is_offered_where_the_network_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Naive: each of 8 vectors passes the line 8 times in each direction.
    notes, now_s = ended(tmp_path / "naive", **two_sites("naive"))
    assert len(notes) == 1
    chosen = notes[0].split("algorithm.schedule=")[1]
    better, then_s = ended(tmp_path / "better", **two_sites(chosen))
    assert better == []
    assert notes[0] == f"with schedule: {chosen} a step would take {_told(then_s, now_s)}algorithm.schedule={chosen}"
    with monkeypatch.context() as patched:
        patched.setattr(hints, "MOST_MESSAGES", 1)
        assert ended(tmp_path / "many", **two_sites("naive")) == ([], now_s)
    # With values, and for more steps than are simulated.
    (longer,), _ = ended(tmp_path / "long", **two_sites("naive", 12) | {"numerics": "real"})
    assert longer.startswith(f"with schedule: {chosen} a step would take about ")


@pytest.mark.parametrize(
    ("gflops", "keys"),
    [
        ((1, 1, 1), {"algorithm": {"name": "pipeline"}}),
        ((0.01, 1, 1), {"algorithm": {"name": "pipeline", "order": ["n0", "n1"]}}),
        ((0.1, 0.1, 0.1), {"algorithm": {"name": "all_reduce_dp"}}),
        ((0.08, 0.1, 0.1), {"algorithm": {"name": "all_reduce_dp"}}),
        ((300, 1000, 1000), {"algorithm": {"name": "all_reduce_dp"}}),
        ((0.01, 0.1, 0.1), {"algorithm": {"name": "edp", "server_trains": False}}),
    ],
    ids=["equal nodes", "an order is given", "equal batches fit", "not far", "the network decides", "no weighing"],
)
def test_there_is_no_hint_without_a_gain(gflops: tuple[float, ...], keys: dict[str, Any], tmp_path: Path) -> None:
    assert ended(tmp_path, *gflops, **keys)[0] == []
