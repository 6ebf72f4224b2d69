"""A question that the quickstart is there to answer. test_golden.py has its accuracy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import simcluster

SLOW_PI = {"topology.nodes.pi4.straggler": {"kind": "constant", "factor": 10}}


def reached(accuracy: float, run: Any) -> float:
    """Virtual seconds after which *run* had *accuracy* on the held-out digits."""
    rows = run.metrics[run.metrics.name == "eval_accuracy"]
    return float(rows.time_s[rows.value >= accuracy].min())


@pytest.mark.exhaustive
def test_asynchronous_training_is_sooner_there_when_one_pi_is_ten_times_slower(tmp_path: Path) -> None:
    sync, asynchronous = (
        simcluster.run("quickstart", algorithm=name, overrides=SLOW_PI, out=tmp_path / name, report=False)
        for name in ("sync_ps", "edp")
    )
    assert reached(0.88, asynchronous) < reached(0.88, sync)
