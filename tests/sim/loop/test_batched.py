"""The option `batched`: gradients in groups change no time and no byte, and a gradient by its tolerance at most."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import simcluster
from simcluster.errors import UsageError
from simcluster.process.late_copies import late_copy
from simcluster.results import Run
from simcluster.transport import Cost, Transport
from simcluster.workloads import Batch, Replica, Workload, gpt, mnist_mlp, sgd
from simcluster.workloads.grouped import TOLERANCE, distance
from simcluster_backends.sim.cluster import Cluster
from simcluster_backends.sim.loop import batched
from tests.support.clusters import star

SIZE = 9
WORK = Cost(1e9, operators=1000)
"""A second on the ideal device, in small operators."""
SAME = ("elapsed_s", "steps", "messages_sent", "bytes_sent", "control_bytes", "joules")
"""Keys of a summary that may not differ by one bit."""


def experiment(algorithm: str, **workload: Any) -> dict[str, Any]:
    return {
        "topology": {"generator": "star", "workers": SIZE, "device": "raspberry-pi-5"},
        "algorithm": algorithm,
        "workload": {"name": "mnist_mlp", "hidden": 16, "batch_size": 8, **workload},
        "stop": {"steps": 12},
    }


def both(source: dict[str, Any], folder: Path) -> tuple[Run, Run]:
    """The run without and with the option."""
    alone = simcluster.run(source, out=folder / "alone", report=False)
    return alone, simcluster.run(source, options={"batched": True}, out=folder / "batched", report=False)


def spans(run: Run) -> list[dict[str, Any]]:
    """Every piece of work and every message, with its times, its bytes and its tag."""
    found = [
        event for event in json.loads((run.folder / "trace.json").read_text())["traceEvents"] if event["ph"] == "X"
    ]
    assert found
    return found


def one_layer(**options: Any) -> Workload:
    """A model that two numbers go into, with *options* in place of the parts of its workload."""
    data = torch.linspace(-1, 1, 400).reshape(200, 2), torch.arange(200) % 2
    parts = {"model": partial(nn.Linear, 2, 2), "loss": nn.functional.cross_entropy, "train": data}
    return Workload(**{**parts, "optimizer": sgd(0.1), "batch_size": 8, **options})


@pytest.mark.parametrize("algorithm", ["sync_ps", "all_reduce_dp", "local_sgd"])
def test_times_and_bytes_are_equal_and_losses_nearly(algorithm: str, tmp_path: Path) -> None:
    """All ranks but a server compute in step: 12 steps of at least 8 ranks, in groups of at least 8, the fewest."""
    runs = both(experiment(algorithm), tmp_path)
    assert spans(runs[0]) == spans(runs[1])
    alone, grouped = (run.summary for run in runs)
    assert {key: grouped[key] for key in SAME} == {key: alone[key] for key in SAME}
    for name, node in alone["nodes"].items():
        other = grouped["nodes"][name]
        assert {key: other[key] for key in node if key != "weights_sha256"} == {
            key: node[key] for key in node if key != "weights_sha256"
        }
    assert grouped["links"] == alone["links"]
    assert grouped["loss"] == pytest.approx(alone["loss"], rel=1e-4)  # 12 steps add up 12 differences
    told = grouped["batched"]
    assert told["largest"] in (SIZE - 1, SIZE)
    assert told["together"] >= 12 * (SIZE - 1)
    assert told["gradients"] == 12 * SIZE
    assert "batched" not in alone


def test_it_is_off_unless_asked_for(tmp_path: Path) -> None:
    source = experiment("sync_ps")
    said = [
        simcluster.run(source, options=options, out=tmp_path / str(number), report=False).summary
        for number, options in enumerate([{}, {"batched": False}])
    ]
    assert said[0]["weights_sha256"] == said[1]["weights_sha256"]
    assert all("batched" not in summary for summary in said)


@pytest.mark.parametrize("algorithm", ["sync_ps", "all_reduce_dp", "local_sgd", "edp"])
def test_the_same_run_twice_has_the_same_bits(algorithm: str, tmp_path: Path) -> None:
    first, second = (
        simcluster.run(experiment(algorithm), options={"batched": True}, out=tmp_path / name, report=False).summary
        for name in ("first", "second")
    )
    nodes = [[node["weights_sha256"] for node in summary["nodes"].values()] for summary in (first, second)]
    assert nodes[0] == nodes[1]
    assert first["batched"] == second["batched"]


def with_own_loss() -> Workload:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
            return {"loss": nn.functional.cross_entropy(self.layer(inputs), labels)}

    inputs = torch.linspace(-1, 1, 400).reshape(200, 2)
    return one_layer(model=Own, loss=None, train={"inputs": inputs, "labels": torch.arange(200) % 2})


class Unused(nn.Module):
    """Has a weight that the loss does not depend on, one that is not trained, and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.spare = nn.Linear(2, 2), nn.Parameter(torch.ones(3))
        self.frozen = nn.Parameter(torch.full((2,), 0.5), requires_grad=False)
        self.register_buffer("scale", torch.full((2,), 2.0))

    def forward(self, inputs: Tensor) -> Tensor:
        scores: Tensor = self.layer(inputs * self.frozen) * self.scale
        return scores


WORKLOADS: dict[str, Callable[[], Workload]] = {
    "mnist_mlp": mnist_mlp,
    "gpt, whose first and last layer share weights": gpt,
    "a model with its own loss": with_own_loss,
    "a model with weights that are not used or not trained": lambda: one_layer(model=Unused),
}


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("shared", [False, True], ids=["own weights", "weights of one memory"])
def test_gradients_differ_by_the_tolerance_at_most(name: str, shared: bool) -> None:
    replicas = [WORKLOADS[name]().replica(rank, SIZE, seed=3, steps=1) for rank in range(SIZE)]
    batches = [replica.first_batch() for replica in replicas]
    if shared:
        frozen = [late_copy(weight) for weight in replicas[0].snapshot()]
        for replica in replicas:
            replica.load(frozen)
    else:
        for steps, (replica, batch) in enumerate(zip(replicas, batches, strict=True)):
            for _ in range(steps):
                replica.apply(replica.loss_and_gradients(batch)[1])
    expected = [replica.loss_and_gradients(batch) for replica, batch in zip(replicas, batches, strict=True)]
    grouped = replicas[0].grouped
    assert grouped is not None
    found = grouped.loss_and_gradients([replica.parameters for replica in replicas], batches)
    for mine, alone in zip(found, expected, strict=True):
        assert distance(mine, alone) <= TOLERANCE
        assert all(tensor.is_contiguous() for tensor in mine[1])
    parts = [tensor for _, gradients in found for tensor in gradients]
    assert len({tensor.data_ptr() for tensor in parts}) == len(parts)  # none shares memory with another


def test_weights_that_are_not_trained_are_those_of_the_seed() -> None:
    """One workload in a sweep over seeds: each draws frozen weights that the gradient depends on."""

    class Drawn(Unused):
        def __init__(self) -> None:
            super().__init__()
            self.frozen = nn.Parameter(torch.randn(2), requires_grad=False)

    workload = one_layer(model=Drawn)
    for seed in (0, 1):
        replica = workload.replica(0, SIZE, seed, steps=1)
        batch, grouped = replica.first_batch(), replica.grouped
        assert grouped is not None
        (found,) = grouped.loss_and_gradients([replica.parameters], [batch])
        assert distance(found, replica.loss_and_gradients(batch)) <= TOLERANCE


def gathered(*bodies: Any, **options: Any) -> dict[str, int]:
    """How the gradients of *bodies* were computed on a star of that many nodes."""
    cluster = Cluster(star(len(bodies)), batched=True, **options)
    for end in cluster.run(bodies):
        if isinstance(end, BaseException):
            raise end
    assert cluster.loop.gradients is not None
    return cluster.loop.gradients.told()


@pytest.fixture
def pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two gradients are enough for a group."""
    monkeypatch.setattr(batched, "LEAST", 2)


def replicas_of(workload: Workload, size: int) -> list[tuple[Replica, Batch]]:
    found = [workload.replica(rank, size, seed=0, steps=1) for rank in range(size)]
    return [(replica, replica.first_batch()) for replica in found]


def test_pieces_that_overlap_in_time_make_a_group_and_others_do_not() -> None:
    """Rank r begins at r/10 s and works for 1 s: at 1 s, when rank 0's is needed, seven more have begun. At 8 s only
    one begins, and is alone: 8 of 9.
    """
    begins_s = (*(rank / 10 for rank in range(8)), 8.0)

    def body(rank: int, replica: Replica, batch: Batch) -> Callable[[Transport], Any]:
        async def algorithm(node: Transport) -> None:
            await asyncio.sleep(begins_s[rank])
            await node.compute(replica.loss_and_gradients, batch, cost=WORK)

        return algorithm

    bodies = [body(rank, *each) for rank, each in enumerate(replicas_of(one_layer(), 9))]
    assert gathered(*bodies) == {"gradients": 9, "together": 8, "largest": 8}


def test_a_gradient_is_computed_before_its_node_changes_the_weights(pairs: None) -> None:
    """Rank 0's other task overwrites its weights while the device works: a real device has begun by then."""
    (replica, batch), (other, others) = replicas_of(one_layer(), 2)
    expected = replica.loss_and_gradients(batch)

    async def changes(node: Transport) -> None:
        async with asyncio.TaskGroup() as group:
            computed = group.create_task(node.compute(replica.loss_and_gradients, batch, cost=WORK))
            await asyncio.sleep(0.5)
            replica.load([torch.zeros_like(weight) for weight in replica.parameters])
        assert distance(computed.result(), expected) <= TOLERANCE

    async def works(node: Transport) -> None:
        await node.compute(other.loss_and_gradients, others, cost=WORK)

    assert gathered(changes, works)["together"] == 2


def test_a_batch_that_fails_fails_its_own_node_alone(pairs: None) -> None:
    """Targets are 0 and 1; rank 1's batch has a 7."""
    (replica, batch), (other, others) = replicas_of(one_layer(), 2)
    wrong = Batch(others.inputs, torch.full_like(others.targets, 7))

    async def works(node: Transport) -> None:
        loss, _ = await node.compute(replica.loss_and_gradients, batch, cost=WORK)
        assert loss == replica.loss_and_gradients(batch)[0]

    async def fails(node: Transport) -> None:
        with pytest.raises(IndexError):
            await node.compute(other.loss_and_gradients, wrong, cost=WORK)

    assert gathered(works, fails)["gradients"] == 2


def test_other_work_and_other_shapes_are_computed_as_without(pairs: None) -> None:
    """One batch of 8, one of 4, and a function: no group."""
    (replica, batch), (other, others) = replicas_of(one_layer(), 2)
    short = Batch(*others.each(lambda tensor: tensor[:4]))

    async def first(node: Transport) -> None:
        await node.compute(replica.loss_and_gradients, batch, cost=WORK)

    async def second(node: Transport) -> None:
        await node.compute(other.loss_and_gradients, short, cost=WORK)

    async def third(node: Transport) -> None:
        assert await node.compute(sum, [1, 2], cost=WORK) == 3

    assert gathered(first, second, third) == {"gradients": 2, "together": 0, "largest": 1}


def test_a_run_that_had_no_group_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Only rank 0 of two trains."""
    (tmp_path / "alone.py").write_text(
        "async def alone(node, replica):\n"
        "    for step, batch in enumerate(replica.batches() if node.rank == 0 else (), start=1):\n"
        "        loss, gradients = await node.compute(\n"
        "            replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))\n"
        "        await node.compute(replica.apply, gradients, cost=replica.apply_cost())\n"
        "        node.record(step=step, loss=loss)\n"
    )
    source = experiment(f"{tmp_path / 'alone.py'}:alone")
    with caplog.at_level(logging.WARNING, "simcluster.run"):
        run = simcluster.run(source, options={"batched": True}, out=tmp_path / "run", report=False)
    assert run.summary["batched"] == {"gradients": 12, "together": 0, "largest": 1}
    assert "batched: each gradient was computed alone" in caplog.text


@pytest.mark.parametrize(
    ("cost", "together"),
    [(Cost(4e7, operators=10), 2), (Cost(4.1e7, operators=10), 0), (Cost(1e3), 0)],
    ids=["4 MFLOP an operator", "more", "operators that are not counted"],
)
def test_large_gradients_are_computed_alone(cost: Cost, together: int, pairs: None) -> None:
    """Beyond 4 MFLOP an operator a group is no faster, and without it such work may go to threads."""

    def body(replica: Replica, batch: Batch) -> Callable[[Transport], Any]:
        async def algorithm(node: Transport) -> None:
            await node.compute(replica.loss_and_gradients, batch, cost=cost)

        return algorithm

    assert gathered(*(body(*each) for each in replicas_of(one_layer(), 2)))["together"] == together


def test_a_group_takes_as_many_as_fit_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """20 replicas, and memory for 8: two groups of 8; of the 4 left each is computed alone."""
    found = replicas_of(one_layer(), 20)
    grouped = found[0][0].grouped
    assert grouped is not None
    monkeypatch.setattr(batched, "MOST_BYTES", 8 * grouped.bytes_each(found[0][1]))

    def body(replica: Replica, batch: Batch) -> Callable[[Transport], Any]:
        async def algorithm(node: Transport) -> None:
            await node.compute(replica.loss_and_gradients, batch, cost=WORK)

        return algorithm

    assert gathered(*(body(*each) for each in found)) == {"gradients": 20, "together": 16, "largest": 8}


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, inputs: Tensor) -> Tensor:
        self.calls += 1
        scores: Tensor = self.layer(inputs)
        return scores


def branches(outputs: Tensor, targets: Tensor) -> Tensor:
    loss = nn.functional.cross_entropy(outputs, targets)
    return loss if loss.item() > 1e-3 else 2 * loss


MODELS: dict[str, tuple[dict[str, Any], str]] = {
    "dropout": (
        {"model": lambda: nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.5), nn.Linear(8, 2))},
        r"batched: found true, but RuntimeError: .*random.*, expected a model and a loss that torch.func.vmap takes",
    ),
    "batch norm": (
        {"model": lambda: nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))},
        r"batched: found true for a model that changes 1.running_mean in its forward pass",
    ),
    "a buffer that counts": ({"model": Counts}, r"found true for a model that changes calls in its forward pass"),
    "a branch on a value": ({"loss": branches}, r"batched: found true, but RuntimeError: .*item"),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_that_vmap_cannot_take_is_refused_before_anything_is_written(name: str, tmp_path: Path) -> None:
    parts, expected = MODELS[name]
    source = {**experiment("sync_ps"), "workload": one_layer(**parts)}
    with pytest.raises(UsageError, match=expected):
        simcluster.run(source, options={"batched": True}, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_model_that_is_not_computed_in_float32_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where gradients differ by more than the tolerance; here any difference is too much."""
    monkeypatch.setattr("simcluster.experiment.batched.TOLERANCE", -1.0)
    with pytest.raises(UsageError, match="found true for a model with gradients that then differ by"):
        simcluster.run(experiment("sync_ps"), options={"batched": True}, out=tmp_path / "run")


@pytest.mark.parametrize("backend", ["sockets", "torch"])
def test_other_backends_say_which_one_has_the_option(backend: str, tmp_path: Path) -> None:
    expected = f"batched: found an option of the simulator, on {backend}, expected backend: sim"
    with pytest.raises(UsageError, match=expected):
        simcluster.run(experiment("sync_ps"), backend=backend, options={"batched": True}, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ({"numerics": "none"}, "batched: found true with numerics: none, expected numerics: real"),
        (
            {"topology.workers": 1, "algorithm": "all_reduce_dp"},
            "batched: found true on one node, expected at least 2",
        ),
        ({"algorithm": "zero"}, "batched: found true with zero: its ranks hold parts of the model"),
    ],
)
def test_runs_without_gradients_to_group_are_refused(overrides: dict[str, Any], expected: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=expected):
        simcluster.run(experiment("sync_ps"), overrides=overrides, options={"batched": True}, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_it_is_true_or_false(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="batched: found 1, expected true or false"):
        simcluster.run(experiment("sync_ps"), options={"batched": 1}, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
