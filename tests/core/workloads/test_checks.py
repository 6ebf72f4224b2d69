"""What is easily mistaken for a workload's parts is refused with the code to write, before a folder is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import StepLR

import simcluster
from simcluster.errors import UsageError
from simcluster.workloads import Workload, sgd
from tests.core.workloads.replicas import some_data


class NeedsMore(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()


class Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 3)


def make(**changes: Any) -> Workload:
    whole = {"model": lambda: nn.Linear(6, 3), "loss": nn.functional.cross_entropy, "train": some_data()}
    return Workload(**{**whole, "optimizer": sgd(0.1), "batch_size": 4, **changes})


OPTIMIZER = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"model": nn.Linear(4, 2)}, "model=lambda: nn.Linear(in_features=4, out_features=2, bias=True)"),
        ({"model": Own()}, "model=lambda: Own(...), or the class Own"),
        ({"model": "mlp"}, "a function that returns an nn.Module, or its class"),
        ({"loss": NeedsMore}, "an instance of it, NeedsMore(...)"),
        ({"loss": "mse"}, "loss(outputs, targets); or None, if the model computes it"),
        ({"optimizer": OPTIMIZER}, "optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1)"),
        ({"optimizer": StepLR(OPTIMIZER, 3)}, "a function that makes the optimizer"),
        ({"optimizer": "adam"}, "such as sgd(0.1)"),
        ({"schedule": StepLR(OPTIMIZER, 3)}, "schedule=lambda optimizer: StepLR(optimizer, ...)"),
    ],
)
def test_a_part_that_is_no_function_is_refused_with_what_to_write(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        make(**changes)
    (problem,) = caught.value.problems
    assert problem.key == next(iter(changes))
    assert expected in problem.expected


def test_the_class_of_a_loss_is_that_loss() -> None:
    assert isinstance(make(loss=nn.CrossEntropyLoss).loss, nn.CrossEntropyLoss)


def test_a_model_that_ranks_would_share_is_refused() -> None:
    net = nn.Linear(6, 3)
    workload = make(model=lambda: net)
    workload.replica(0, 2, seed=0, steps=1)
    with pytest.raises(UsageError, match="a function that returns the same model again, expected a new one"):
        workload.replica(1, 2, seed=0, steps=1)


def test_the_code_that_an_error_gives_makes_that_model() -> None:
    with pytest.raises(UsageError) as caught:
        make(model=nn.Linear(6, 3, bias=False))
    code = caught.value.problems[0].expected.partition("model=")[2]
    made = eval(code, {"nn": nn})()
    assert str(made) == str(nn.Linear(6, 3, bias=False))


OWN = """
import torch
from torch import nn
from simcluster.workloads import Workload, sgd

DATA = torch.ones(40, 6), torch.arange(40) % 3

def mismatch():
    return Workload(model=lambda: nn.Linear(5, 3), loss=nn.functional.cross_entropy, train=DATA, optimizer=sgd(0.1),
                    batch_size=4)

def targets():
    return Workload(model=lambda: nn.Linear(6, 3), loss=nn.functional.mse_loss, train=DATA, optimizer=sgd(0.1),
                    batch_size=4)

def on_meta():
    return Workload(model=lambda: nn.Linear(6, 3, device="meta"), loss=nn.functional.cross_entropy, train=DATA,
                    optimizer=sgd(0.1), batch_size=4)

def vector():
    return Workload(model=lambda: nn.Linear(6, 3), loss=nn.CrossEntropyLoss(reduction="none"), train=DATA,
                    optimizer=sgd(0.1), batch_size=4)

def scheduler_alone():
    return Workload(model=lambda: nn.Linear(6, 3), loss=nn.functional.cross_entropy, train=DATA,
                    optimizer=lambda parameters: torch.optim.lr_scheduler.StepLR(sgd(0.1)(parameters), 3), batch_size=4)

class Named(nn.Linear):
    def forward(self, inputs):
        return {"logits": super().forward(inputs)}

def outputs():
    return Workload(model=lambda: Named(6, 3), loss=nn.functional.cross_entropy, train=DATA, optimizer=sgd(0.1),
                    batch_size=4)

def without_loss():
    return Workload(model=lambda: nn.Linear(6, 3), loss=None, train=DATA, optimizer=sgd(0.1), batch_size=4)
"""


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mismatch", r"mat1 and mat2 shapes.*inputs of shape \(4, 6\) and targets of \(4,\)"),
        ("targets", r"must match the size.*inputs of shape \(4, 6\) and targets of \(4,\)"),
        ("on_meta", "meta device, expected a model made on the CPU"),
        ("vector", r"the loss has shape \(4,\)"),
        ("scheduler_alone", "a StepLR alone, expected the optimizer with it: `return optimizer, scheduler`"),
        ("outputs", "the model returns a dict: write loss=None if it computes its own"),
        ("without_loss", "loss: found None, and a model that returns a Tensor without a loss"),
    ],
)
def test_a_workload_that_does_not_fit_together_is_refused_before_its_folder_is_written(
    name: str, expected: str, tmp_path: Path
) -> None:
    (tmp_path / "own.py").write_text(OWN)
    with pytest.raises(UsageError, match=expected):
        simcluster.run(
            topology="smolcluster", algorithm="sync_ps", workload={"path": f"{tmp_path}/own.py:{name}"},
            stop={"steps": 2}, out=tmp_path / "run", report=False,
        )  # fmt: skip
    assert not (tmp_path / "run").exists()
