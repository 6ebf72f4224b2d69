"""A script compared with itself as the only rank."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simcluster.errors import NodeFailed, UsageError
from simcluster.lab.explain.baseline import baseline
from tests.core.scripts.running import pair

ROWS = """
import sys, simcluster, torch, torch.distributed as dist
dist.init_process_group("gloo")
torch.ones(1000, 1000) @ torch.ones(1000, 1000)
optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))])
rows = 100 if sys.argv[1] == "kept" else 100 // dist.get_world_size()
assert sys.argv[1] != "two" or dist.get_world_size() == 2, "this script needs two ranks"
for step in range(1, int(sys.argv[2]) + 1):
    torch.ones(rows, 100) @ torch.ones(100, 100)
    dist.all_reduce(torch.ones(125_000))
    optimizer.step()
    simcluster.log(step=step, loss=dist.get_world_size() / step)
"""


def asked(tmp_path: Path, batch: str, steps: int = 3, **keys: Any) -> dict[str, Any]:
    (tmp_path / "rows.py").write_text(ROWS)
    return {"script": {"file": str(tmp_path / "rows.py"), "args": [batch, steps]}, "topology": pair(), **keys}


@pytest.mark.slow
@pytest.mark.parametrize(("batch", "step_s", "work"), [("kept", 6e-3, 2.0), ("shared", 5e-3, 1.0)])
def test_the_speed_up_is_of_what_the_ranks_compute(batch: str, step_s: float, work: float, tmp_path: Path) -> None:
    found = baseline(asked(tmp_path, batch), out=tmp_path / "run").to_dict()
    # 2 x rows x 100 x 100 FLOPs at 1 GFLOP/s are 2 ms with 100 rows; a ring of two takes 4 ms for 500 kB at 1 Gbps.
    # The product of 2 s before the first step is of the run, and not of its steps.
    assert found["together_s"] > 2.0
    assert (found["node"], found["together_steps"], found["alone_steps"]) == ("a", 3, 3)
    assert (found["together_step_s"], found["alone_step_s"]) == pytest.approx((step_s, 2e-3), rel=0.01)
    assert (found["work_of_a_step"], found["speed_up"]) == pytest.approx((work, work * 2e-3 / step_s), rel=0.01)
    assert (found["together_loss"], found["alone_loss"]) == (pytest.approx(2 / 3), pytest.approx(1 / 3))
    assert found["sentences"][-1].startswith("Only the script knows its samples, and one rank may have had others:")


@pytest.mark.slow
def test_one_step_is_told_by_the_whole_run(tmp_path: Path) -> None:
    found = baseline(asked(tmp_path, "kept", 1), out=tmp_path / "run").to_dict()
    assert found["together_step_s"] == found["together_s"] > 2.0  # when the first began is not known


@pytest.mark.slow
def test_a_script_that_needs_its_ranks_ends_with_its_own_error(tmp_path: Path) -> None:
    with pytest.raises(NodeFailed, match=r"rank 0 \(b\) failed: AssertionError: this script needs two ranks") as end:
        baseline(asked(tmp_path, "two"), node="b", out=tmp_path / "run")
    assert "this was the run with b as its only rank" in end.value.__notes__


def test_what_has_no_baseline_is_refused_before_anything_runs(tmp_path: Path) -> None:
    fault = {"kind": "crash", "node": "b", "at": "1 s"}
    with pytest.raises(UsageError, match=r"faults: found 1 fault, expected none: faults=\[\]"):
        baseline(asked(tmp_path, "kept", faults=[fault]), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
