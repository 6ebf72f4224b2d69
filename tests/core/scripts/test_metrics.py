"""Metrics that several ranks log: the lowest rank's are those of the run."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import simcluster
from simcluster.cli.app import app
from simcluster.errors import RunError, UsageError
from tests.core.scripts.running import pair

UNLIKE = """
import sys, time, simcluster, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(1, 4):
    time.sleep(2 if rank == int(sys.argv[1]) else 1)
    simcluster.log(step=step, loss=(12 - 6 * rank) / step)
    if rank:
        simcluster.log(step=step, accuracy=rank * step / 10)
"""


def swept(tmp_path: Path, slow: int) -> simcluster.Sweep:
    (tmp_path / "unlike.py").write_text(UNLIKE)
    asked = {"script": {"file": str(tmp_path / "unlike.py"), "args": [slow]}, "topology": pair(nodes="abc")}
    return simcluster.sweep(asked, target={"loss": 4.5}, out=tmp_path / f"slow{slow}", jobs=1, report=False)


@pytest.mark.slow
def test_the_loss_of_a_run_is_that_of_its_lowest_rank_whichever_rank_logs_last(tmp_path: Path) -> None:
    points = [swept(tmp_path, slow) for slow in (0, 1, 2)]
    for point in points:
        # Rank 0's losses are 12, 6, 4, rank 1's 6, 3, 2, rank 2's 0; of ranks 1 and 2, which log it, 1 has 0.3 at last.
        (row,) = point.table[["loss", "accuracy"]].itertuples(index=False)
        assert row == (4.0, pytest.approx(0.3))
        (run,) = point.runs
        assert run is not None
        assert (run.summary["loss"], run.summary["accuracy"]) == row
    # Rank 0 is below 4.5 at its third step: of 2 s where it is slow, else of 1 s.
    assert [list(point.table["time_to_target_s"]) for point in points] == [[6.0], [3.0], [3.0]]
    last = [list(run.metrics["node"])[-1] for point in points for run in point.runs if run is not None]
    assert last == ["a", "b", "c"]
    (pair_of,) = simcluster.compare(points[0].runs[0], points[1].runs[0]).pairs
    assert pair_of.to_dict()["loss"] == {"a": 4.0, "b": 4.0, "equal": True}


@pytest.mark.slow
def test_the_nearest_that_a_script_came_to_its_goal_is_of_its_lowest_rank(tmp_path: Path) -> None:
    (tmp_path / "unlike.py").write_text(UNLIKE)
    asked = {"script": {"file": str(tmp_path / "unlike.py"), "args": [0]}, "topology": pair()}
    with pytest.raises(RunError, match=r"the best loss was 4\)"):  # 12 / 3 of rank 0, not 6 / 3 of rank 1
        simcluster.whatif(asked, goal="time-to-loss=1", out=tmp_path / "whatif", report=False)


@pytest.mark.slow
def test_a_sweep_of_a_script_over_nodes_has_no_speed_up_by_samples_and_says_what_to_draw(tmp_path: Path) -> None:
    (tmp_path / "alone.py").write_text("import time\ntime.sleep(1)\n")
    star = {"generator": "star", "workers": 1, "device": "mac-mini-m4", "bandwidth": "1 Gbps", "latency": "1 ms"}
    asked = {"script": str(tmp_path / "alone.py"), "topology": star}
    swept = simcluster.sweep(asked, {"topology.workers": [2, 3]}, out=tmp_path / "sweep", jobs=1, report=False)
    for name in ("speedup", "efficiency"):
        done = CliRunner().invoke(app, ["figure", str(swept.folder), name, "--out", str(tmp_path / "figure.html")])
        assert isinstance(done.exception, UsageError)  # exit code 2
        assert str(done.exception) == (
            "by=elapsed_s: this compares samples per second, and only a script knows its samples; "
            "draw `simcluster figure SWEEP against y=elapsed_s`, or sweep with a target and by=time_to_target_s"
        )
    drawn = CliRunner().invoke(
        app, ["figure", str(swept.folder), "against", "y=elapsed_s", "--out", str(tmp_path / "figure.html")]
    )
    assert (drawn.exit_code, (tmp_path / "figure.html").is_file()) == (0, True)
