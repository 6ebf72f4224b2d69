"""Predicted against measured: each point at its two times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simcluster.errors import UsageError
from simcluster.lab.reports.compare_plots import steps
from simcluster.results import Run, compare
from simcluster.runs.write import write_run
from simcluster.topology import load
from tests.support.made_up_runs import compute_s, made_up_config, made_up_run, topology_document


def write(folder: Path, backend: str, stretch: float) -> Run:
    topology = load(topology_document())
    record = made_up_run(5, stretch=stretch)
    return Run(write_run(folder, made_up_config(backend=backend), topology, record, "0.1.0"))


@pytest.fixture(scope="module")
def figure(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A real run that took a quarter longer in everything, given first."""
    folder = tmp_path_factory.mktemp("runs")
    real, simulated = write(folder / "real", "sockets", 1.25), write(folder / "sim", "sim", 1.0)
    return compare(real, simulated).plot.predicted_measured()


def test_every_point_has_the_prediction_across_and_the_measurement_up(figure: Any) -> None:
    points = {trace.name: trace for trace in figure.data if trace.mode == "markers"}
    # 5 steps of 38 ms: 190 ms, on an axis in ms
    assert (points["the whole run"].x[0], points["the whole run"].y[0]) == pytest.approx((190, 237.5))
    assert list(points["a node computing"].x) == pytest.approx([5e3 * compute_s(rank) for rank in range(5)])
    assert list(points["a step"].x) == pytest.approx([38] * 5)
    for trace in points.values():
        assert list(trace.y) == pytest.approx([1.25 * x for x in trace.x])
    assert "(x1.25)" in points["the whole run"].hovertext[0]


def test_runs_of_one_backend_predict_nothing(tmp_path: Path) -> None:
    runs = [write(tmp_path / name, "sim", 1.0) for name in "ab"]
    with pytest.raises(UsageError, match="a run on sim and one on sockets"):
        compare(*runs).plot.predicted_measured()


def test_a_step_that_is_not_recorded_shares_the_time_until_the_next(tmp_path: Path) -> None:
    record = made_up_run(4)  # of 38 ms each
    for node in record.nodes:
        node.metrics = [metric for metric in node.metrics if metric.step in (1, 3)]
    run = Run(write_run(tmp_path, made_up_config(), load(topology_document()), record, "0.1.0"))
    assert {step: times.predicted_s for step, times in steps(run, run).items()} == pytest.approx({1: 0.038, 3: 0.038})
