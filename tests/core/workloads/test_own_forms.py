"""Every form of workload trains as two tensors do: the same on one process and on many, timed, resumed, evaluated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import nn
from torch.utils.data import TensorDataset

import simcluster
from simcluster.errors import UsageError
from simcluster.experiment.measurements import LEARNING_RATE
from simcluster.experiment.read.read import read_experiment
from simcluster.transport import Cost
from simcluster.workloads import Workload, sgd, train_alone
from tests.core.workloads import own_forms
from tests.core.workloads.own_forms import (
    CLASSES,
    LENGTH,
    TEXTS,
    Classifier,
    classifier,
    iterable,
    named,
    scheduled,
    texts,
)
from tests.support.kept import config, hashes, play, play_on

FILE = Path(own_forms.__file__)
FORMS = {"classifier": classifier, "named": named, "iterable": iterable}


def of_file(
    algorithm: str, form: str, *, steps: int = 8, workload: dict[str, Any] | None = None, **settings: Any
) -> Any:
    return config(algorithm, {"path": f"{FILE}:{form}", **(workload or {})}, steps=steps, **settings)


@pytest.mark.parametrize("form", FORMS)
def test_n_nodes_compute_what_one_process_computes(form: str, tmp_path: Path) -> None:
    record = play(of_file("all_reduce_dp", form), tmp_path)
    alone = train_alone(FORMS[form](), 4, 3, 8)
    names = FORMS[form]().replica(0, 1, 3, 1).names
    kept = record.nodes[0].weights
    found = safetensors.torch.load(kept.read(0, kept.size_bytes))
    for name, expected in zip(names, alone, strict=True):
        assert torch.allclose(found[name], expected, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_both_backends_end_with_the_same_bits_and_costs(form: str, tmp_path: Path) -> None:
    source = of_file("sync_ps", form)
    simulated = simcluster.run(source, out=tmp_path / "sim", report=False)
    real = simcluster.run(source, backend="sockets", out=tmp_path / "sockets", report=False)
    timed = simcluster.run(source, overrides={"numerics": "none"}, out=tmp_path / "timed", report=False)
    for key in ("weights_sha256", "bytes_sent", "steps", "loss", "accuracy"):
        assert simulated.summary[key] == real.summary[key], key
    # Costs do not depend on values, so timing alone takes the same virtual time and sends the same bytes.
    for key in ("elapsed_s", "bytes_sent", "messages_sent", "joules"):
        assert simulated.summary[key] == timed.summary[key], key
    assert simulated.summary["samples"]["used"] == real.summary["samples"]["used"] == 4 * 8 * 4


@pytest.mark.parametrize("form", [*FORMS, "scheduled"])
def test_a_resumed_run_is_bit_for_bit_one_that_never_stopped(form: str, tmp_path: Path) -> None:
    whole = play(of_file("sync_ps", form), tmp_path, {"checkpoint": {"every": 4}})
    rest = play_on(tmp_path, 4)
    assert hashes(rest) == hashes(whole)
    assert rest.extra["samples"] == whole.extra["samples"]


def test_a_model_with_its_own_loss_is_that_model_with_the_loss_outside() -> None:
    class Outside(Classifier):
        def forward(self, tokens: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            return super().forward(tokens).logits

    rows = texts()
    tokens, labels = torch.tensor([row["input_ids"] for row in rows]), torch.tensor([row["labels"] for row in rows])
    inside, outside = (
        Workload(model=Classifier, loss=None, train=rows, optimizer=sgd(0.1), batch_size=4),
        Workload(
            model=Outside, loss=nn.functional.cross_entropy, train=(tokens, labels), optimizer=sgd(0.1), batch_size=4
        ),
    )
    ends = [train_alone(workload, 2, 0, 5) for workload in (inside, outside)]
    for a, b in zip(*ends, strict=True):
        assert torch.allclose(a, b, atol=1e-6)


def test_costs_and_memory_of_named_inputs_are_counted() -> None:
    replica = classifier().replica(0, 1, 0, 1)
    batch = next(replica.batches())
    # The head: 2 * 4 * 8 * 3 FLOPs forward, as many for its weights' gradient and for its input's.
    assert replica.gradient_cost(batch).flops == 3 * 2 * 4 * 8 * CLASSES
    assert replica.gradient_cost(batch) == classifier().replica(0, 1, 0, 1, numerics="none").gradient_cost(batch)
    assert isinstance(replica.apply_cost(), Cost)
    memory = classifier().memory()
    # Tokens, mask and labels, 8 bytes each; labels, which are also the targets, count once.
    assert memory.batch == 4 * (2 * LENGTH + 1) * 8
    assert memory.data == (TEXTS + 24) * (2 * LENGTH + 1) * 8
    assert classifier().memory("none").batch == memory.batch


def test_accuracy_is_known_for_models_that_return_logits() -> None:
    replica = classifier().replica(0, 1, 0, 200)
    before = replica.evaluate()
    for batch in replica.batches():
        replica.apply(replica.loss_and_gradients(batch)[1])
    after = replica.evaluate()
    assert after["accuracy"] > 0.8 > before["accuracy"]
    assert after["loss"] < before["loss"]


@pytest.mark.parametrize("algorithm", ["pipeline", "tensor_parallel", "zero", "all_reduce_dp"])
@pytest.mark.parametrize(("form", "found"), [("classifier", "inputs by name: input_ids"), ("named", "left, right")])
def test_algorithms_that_use_layers_refuse_named_inputs_before_the_run(algorithm: str, form: str, found: str) -> None:
    with pytest.raises(UsageError, match=f"{found}.*expected one tensor for the first layer"):
        read_experiment(of_file(algorithm, form, **({"bucket_bytes": 100} if algorithm == "all_reduce_dp" else {})))


def test_batches_by_device_hold_for_dicts() -> None:
    source = of_file("sync_ps", "classifier", workload={"batch_size": {"total": 16, "by": "device"}})
    plan = read_experiment(source)
    assert sum(plan.workload.sizes(4)) == 16
    assert [len(next(plan.workload.replica(rank, 4, 0, 1).batches())) for rank in range(4)] == [*plan.workload.sizes(4)]


def test_partitions_by_class_hold_for_dicts() -> None:
    from functools import partial

    from simcluster.workloads import dirichlet

    rows = texts()
    deal = partial(dirichlet, alpha=0.1, at_least=4)
    workload = Workload(Classifier, None, rows, sgd(0.1), 4, partition=deal)
    shards = workload.shards(3, 0)
    assert sorted(number for shard in shards for number in shard) == list(range(TEXTS))
    labels = [[rows[number]["labels"] for number in shard] for shard in shards]
    assert len({tuple(found.count(label) / len(found) for label in range(CLASSES)) for found in labels}) == 3


def test_the_whole_report_of_such_a_run_is_written(tmp_path: Path) -> None:
    run = simcluster.run(of_file("local_sgd", "classifier"), out=tmp_path / "run")
    assert run.summary["status"] == "done"
    assert run.summary["accuracy"] is not None
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["loss"] > 0


def test_the_rate_that_is_observed_is_the_schedules(tmp_path: Path) -> None:
    source = of_file("all_reduce_dp", "scheduled", steps=4) | {"observe": {"learning_rate": True}}
    run = simcluster.run(source, out=tmp_path / "run", report=False)
    rows = run.metrics[run.metrics["name"] == LEARNING_RATE].sort_values("step")
    node = rows[rows["node"] == rows["node"].iloc[0]]
    # 0.1 times 0.7 per step.
    assert node["value"].tolist() == pytest.approx([0.1, 0.07, 0.049, 0.0343])


def test_a_schedule_costs_nothing_and_needs_no_numbers(tmp_path: Path) -> None:
    plain = scheduled()
    bare = Workload(plain.model, plain.loss, plain.train, sgd(0.1, momentum=0.5), 4)
    assert scheduled().replica(0, 1, 0, 1).apply_cost() == bare.replica(0, 1, 0, 1).apply_cost()
    timed = simcluster.run(
        of_file("all_reduce_dp", "scheduled"), overrides={"numerics": "none"}, out=tmp_path / "run", report=False
    )
    assert timed.summary["status"] == "done"


def test_a_list_of_pairs_trains_to_the_bits_of_two_tensors() -> None:
    inputs, targets = torch.rand(40, 3), torch.arange(40) % 2
    pairs = [(row, int(target)) for row, target in zip(inputs, targets, strict=True)]
    ends = [
        train_alone(Workload(lambda: nn.Linear(3, 2), nn.functional.cross_entropy, train, sgd(0.1), 4), 2, 0, 5)
        for train in (pairs, (inputs, targets), TensorDataset(inputs, targets))
    ]
    for others in ends[1:]:
        assert all(torch.equal(a, b) for a, b in zip(ends[0], others, strict=True))
