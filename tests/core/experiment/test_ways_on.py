"""Slips that strangers make: the sentence has the line to write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import simcluster
from simcluster.documents.user_code import load_function
from simcluster.errors import UsageError
from simcluster.experiment.node import _explained
from simcluster.experiment.read.read import read_experiment
from simcluster.lm.models.open import open_model
from simcluster.runs.folder import RunFolder
from simcluster.transport import Transport
from simcluster.workloads.data.datasets import as_samples

OWN = "async def train(node, replica): 1\nasync def _in(): 1\nasync def other(node, replica): 1\ndef make(): 1"


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.py").write_text(OWN)
    (tmp_path / "run.zip").write_bytes(b"PK\x03\x04\xff")
    return tmp_path


def said(act: Any) -> str:
    with pytest.raises(UsageError) as caught:
        act()
    return str(caught.value)


def test_a_file_without_its_function_is_offered_its_functions(own: Path) -> None:
    assert said(lambda: read_experiment("quickstart", algorithm="my.py")).endswith(
        "expected my.py:train or my.py:other"
    )
    assert said(lambda: read_experiment("quickstart", workload="my.py")).endswith("expected my.py:make")
    assert said(lambda: load_function("my.py", own, "algorithm")).endswith("expected my.py:train or my.py:other")
    assert said(lambda: load_function("nosuch.py", own, "algorithm")).endswith("expected file.py:function")
    (own / "my.py").write_text("def (")
    assert said(lambda: load_function("my.py", own, "algorithm")).endswith("expected file.py:function")


def test_another_kind_of_file_is_named_with_where_it_belongs(own: Path) -> None:
    found = said(lambda: read_experiment("my.py"))
    assert "found my.py, a Python file, expected an experiment that uses it: quickstart algorithm my.py:train" in found
    assert "found run.zip, an archive, expected an experiment; " in said(lambda: read_experiment("run.zip"))
    assert said(lambda: RunFolder("run.zip")).endswith(
        "found the file run.zip, expected a run folder: unpack the file first"
    )


@pytest.mark.parametrize(("key", "inside"), [("steps", "stop"), ("epochs", "stop"), ("every", "checkpoint")])
def test_a_key_of_a_block_is_found_there(key: str, inside: str) -> None:
    meant = f'did you mean {inside}.{key}, in Python {inside}={{"{key}": ...}}?'
    assert said(lambda: read_experiment("quickstart", {key: 3})).endswith(meant)
    assert f"{key}: unknown key; {meant}" in said(lambda: read_experiment({"topology": "pi-cluster", key: 3}))


def test_a_preset_without_weights_is_timed_by_a_number_of_tokens() -> None:
    assert "'70b', a preset without weights, expected a model with weights: smollm2" in said(lambda: open_model("70b"))
    assert "no such name" in said(lambda: open_model("71b"))


class Broken(Dataset[Any]):
    def __len__(self) -> int:
        return 9

    def __getitem__(self, number: int) -> Any:
        return torch.ones(2), [0, 1, 0][number]


@pytest.mark.parametrize("data", [Broken(), DataLoader(Broken(), collate_fn=list)])
def test_an_item_that_raises_is_named_by_its_number(data: Any) -> None:
    found = said(lambda: as_samples(data, "test"))
    assert found.startswith("test: found item 3 of Broken, which raises IndexError: list index out of range, expected")


def test_slips_with_costs_and_steps_are_noted_with_the_line_to_write() -> None:
    experiment: Any = read_experiment("quickstart", {"stop.steps": 1})
    unbound: Any = Transport.compute
    for act, words in (
        (lambda: unbound(None, print), "cost=replica.gradient_cost(batch)"),
        (lambda: next(iter(_steps())), "write `async for`"),
    ):
        with pytest.raises(TypeError) as caught:
            act()
        (note,) = _explained(caught.value, experiment).__notes__
        assert words in note


async def _steps() -> Any:
    yield 1


@pytest.mark.parametrize(("keys", "says"), [({}, ["nothing of this run is kept"]), ({"checkpoint": {"every": 1}}, [])])
def test_ctrl_c_says_that_nothing_is_kept_unless_checkpoints_were_asked_for(
    keys: dict[str, Any], says: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(job: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("simcluster_backends.sim.run.run_cluster", interrupted)
    with pytest.raises(KeyboardInterrupt) as end:
        simcluster.run("quickstart", overrides=keys, out=tmp_path / "run", report=False)
    assert [note.partition(";")[0] for note in getattr(end.value, "__notes__", [])] == says
