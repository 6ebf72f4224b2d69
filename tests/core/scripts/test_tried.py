"""Scripts have the features of algorithms: Python's call, faults at a step, what-if, stops, devices by number."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import simcluster
from simcluster.errors import UsageError
from simcluster.experiment.read.read import read_experiment
from simcluster.lab.sweeps.points import read_points
from simcluster.lab.what_if.goal import Goal
from tests.core.scripts.running import pair, printed, run_script

TRAIN = """
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import simcluster

dist.init_process_group("gloo")
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=float(sys.argv[1]))
for step in range(4):
    loss = model(torch.ones(2, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    simcluster.log(step=step + 1, loss=loss)
    print("step", step + 1, flush=True)
print("done")
"""

DEVICES = """
import torch
import torch.distributed as dist

dist.init_process_group("nccl")
devices = [torch.device(0), torch.device("cuda", 1), torch.device(type="cuda", index=1), torch.device("cpu")]
values = [torch.ones(2, device=device) for device in devices]
total = sum(values, torch.zeros(2).to(0))
model = torch.compile(torch.nn.Linear(2, 1).to(devices[1]))
step = torch.compile(lambda x: x)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for _ in range(2):
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(step(total)).float().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print("devices", {str(value.device) for value in values})
"""


@pytest.fixture
def train(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    return tmp_path / "train.py"


def test_a_fault_at_a_step_begins_when_its_node_has_ended_it_and_not_again_after_a_restart(
    train: Path, tmp_path: Path
) -> None:
    with simcluster.faults() as plan:
        plan.crash("b", at_step=2)
        plan.slow("a", factor=2.0, at_step=9)
        run = simcluster.run(
            script=train, args=[0.1], topology=pair(), options={"max_restarts": 1}, out=tmp_path / "run", report=False
        )
    assert [line for line in printed(tmp_path / "run", "b") if line != "done"] == [
        f"step {step}" for step in (1, 2, 1, 2, 3, 4)
    ]
    (crash,) = run.summary["faults"]
    assert crash["plan"] == {"kind": "crash", "node": "b", "at_step": 2}
    (note,) = run.summary["notes"]
    assert note.startswith("fault 2 (slow of a at step 9) never happened: the run ended at")
    ((_, last), *_) = sorted(run.metrics[["time_s", "step"]].itertuples(index=False), reverse=True)
    assert (run.summary["steps"], last) == (4, 4)


@pytest.mark.slow
def test_a_script_ends_after_stop_steps_and_keeps_what_it_logs_of_the_last(train: Path, tmp_path: Path) -> None:
    for numerics, losses in (("real", 2), ("none", 0)):
        folder = tmp_path / numerics
        run = simcluster.run(
            script=train, args=[0.1], topology=pair(), stop={"steps": 2}, numerics=numerics, out=folder, report=False
        )
        assert printed(folder)[-2:] == ["step 1", "step 2"]
        assert run.summary["steps"] == 2
        assert list(run.metrics["name"]) == ["loss"] * losses * 2


def test_a_step_of_what_if_is_a_step_of_the_script(train: Path) -> None:
    plan = read_experiment({"script": {"file": str(train)}, "topology": pair()})
    table = pd.DataFrame({"elapsed_s": [6.0, 9.0, 9.0], "steps": [4, 3, 1], "status": ["done", "done", "failed"]})
    assert Goal("step-time").measured(table, plan.planned_steps) == [1.5, 3.0, None]


def test_points_of_a_sweep_differ_by_arguments_and_by_files_beside_the_script(train: Path) -> None:
    def digests(*rates: float) -> list[str]:
        experiment = {"script": {"file": str(train), "args": list(rates)}, "topology": pair()}
        return [point.digest for point in read_points(experiment, [], {})]

    (before,) = digests(0.1)
    assert digests(0.1) == [before]
    assert digests(0.2) != [before]
    train.write_text(f"import beside\n{TRAIN}")
    (train.parent / "beside.py").write_text("x = 1\n")
    (one,) = digests(0.1)
    (train.parent / "beside.py").write_text("x = 2\n")
    assert one not in (before, *digests(0.1))


@pytest.mark.slow
def test_devices_named_by_numbers_and_scaled_halves_work_without_values_too(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "devices.py").write_text(DEVICES)
    for numerics in ("real", "none"):
        simcluster.run(
            script=tmp_path / "devices.py", topology=pair(), numerics=numerics, out=tmp_path / numerics, report=False
        )
        told = capfd.readouterr().err.splitlines()
        assert "devices {'cpu'}" in told
        assert [line for line in told if "torch.compile" in line] == [
            "note: torch.compile passes through: the simulator counts operators one by one"
        ]


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"script": {"cost": "measured"}, "numerics": "none"}, "script.cost: found measured, expected counted or free"),
        ({"script": {"cost": "fast"}}, "script.cost: found 'fast', expected 'counted', 'measured' or 'free'"),
        ({"script": {"arg": []}}, "script.arg: unknown key; did you mean 'args'?"),
        ({"arg": []}, "arg: unknown key"),
        ({"algorithm": {"name": "edp"}}, "algorithm: found edp, expected no such key with `script`"),
        ({"stop": {"epochs": 2}}, "stop.epochs: found 2, expected steps or time with `script`"),
        ({"faults": [{"kind": "crash", "node": "b", "at_step": 2, "at": "1 s"}]}, "faults[0].at: found '1 s'"),
    ],
)
def test_what_a_script_cannot_have_is_one_sentence(keys: dict[str, object], told: str, train: Path) -> None:
    block = {"file": str(train), **keys.pop("script", {})}  # type: ignore[dict-item]
    with pytest.raises(UsageError) as error:
        simcluster.run({"topology": pair(), **keys, "script": block})
    assert str(error.value).startswith(told)
    assert len(error.value.problems) == 1


def test_a_rank_has_the_variables_of_now_not_those_of_the_first_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "script.py").write_text("import os\nprint('found', os.environ.get('MINE'))\n")
    found = []
    for value in ("one", "two"):
        monkeypatch.setenv("MINE", value)
        run_script(tmp_path / "script.py", tmp_path / value, pair())
        found += printed(tmp_path / value, "b")
    assert found == ["found one", "found two"]
