"""What training takes in memory, byte by byte, and the error before a run that does not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import simcluster
from simcluster.algorithms import ALGORITHMS
from simcluster.algorithms.facts import facts_of
from simcluster.errors import UsageError
from simcluster.workloads import Workload, adamw, mnist_mlp, sgd
from simcluster.workloads.costs import counter
from simcluster.workloads.costs.memory import count_memory

WEIGHTS = 4 * (784 * 128 + 128 + 128 * 10 + 10)
"""The digit network's parameters, in bytes."""


def test_the_digit_network_takes_what_its_shapes_say() -> None:
    memory = mnist_mlp(hidden=128, batch_size=32).memory()
    assert memory.weights == memory.gradients == WEIGHTS
    assert memory.optimizer == 0  # plain descent remembers nothing
    # 32 images of 784 floats, 32 labels of 8 bytes
    assert memory.batch == 32 * (784 * 4 + 8)
    # Saved for the way back: the ReLU's 128 outputs and the 10 log-probabilities of each image, and the loss's scale.
    assert memory.activations == 32 * (128 + 10) * 4 + 4
    # 4,000 images to train on and 1,000 held out
    assert memory.data == 5000 * (784 * 4 + 8)
    assert memory.total == 2 * WEIGHTS + memory.batch + memory.activations + memory.data


@pytest.mark.parametrize(
    ("settings", "optimizer"),
    [
        ({"momentum": 0.9}, WEIGHTS),
        # Two moments of each weight, and a count of steps for each of the four tensors.
        ({"optimizer": "adamw"}, 2 * WEIGHTS + 4 * 4),
    ],
)
def test_an_optimizer_counts_with_what_it_remembers(settings: dict[str, Any], optimizer: int) -> None:
    assert mnist_mlp(**settings).memory().optimizer == optimizer


def test_a_larger_batch_saves_more_activations_and_a_wider_network_has_more_of_everything() -> None:
    small, larger, wider = (mnist_mlp(**s).memory() for s in ({}, {"batch_size": 64}, {"hidden": 256}))
    assert larger.activations - 4 == 2 * (small.activations - 4)
    assert larger.weights == small.weights
    assert wider.weights > small.weights
    assert wider.activations > small.activations


def test_nothing_is_counted_twice_and_frozen_weights_have_no_gradient() -> None:
    def model() -> nn.Module:
        model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4))
        model[2].weight = model[0].weight  # tied
        model[0].bias.requires_grad_(False)
        return model

    inputs, targets = torch.ones(40, 4), torch.arange(40) % 4
    # The whole data set is one storage, of which training and held-out samples are views.
    workload = Workload(
        model,
        nn.functional.cross_entropy,
        (inputs[:30], targets[:30]),
        adamw(0.1),
        5,
        test=(inputs[30:], targets[30:]),
    )
    memory = workload.memory()
    # 16 + 4 + 4 of the layers, 4 + 4 of the norm, its running mean and variance 4 + 4 and a count of 8 bytes
    assert memory.weights == 4 * (16 + 4 + 4 + 4 + 4 + 4 + 4) + 8
    assert memory.gradients == 4 * (16 + 4 + 4 + 4)
    assert memory.data == 40 * (4 * 4 + 8)


@pytest.mark.parametrize("settings", [{}, {"optimizer": "adamw", "clip_norm": 1.0}])
def test_timing_alone_counts_the_same_bytes(settings: dict[str, Any]) -> None:
    workload = mnist_mlp(**settings)
    assert workload.memory("none") == workload.memory("real")


def test_every_algorithm_says_what_it_holds() -> None:
    copies = {name: stated for name, found in ALGORITHMS.items() if (stated := facts_of(found).copies)}
    phases = {name for name, found in ALGORITHMS.items() if facts_of(found).phases}
    assert (copies.keys() | phases, copies.keys() & phases) == (set(ALGORITHMS), set())
    sync, edp, dp = (copies[name] for name in ("sync_ps", "edp", "all_reduce_dp"))
    # Five ranks. The server: 4 gradients, 4 replies and the weights they were made of.
    assert [sync(rank, 5, {"polyak": 1.0}) for rank in range(5)] == [9.0, 1.0, 1.0, 1.0, 1.0]
    assert sync(1, 5, {"polyak": 0.5}) == 2.0
    assert [edp(rank, 5, {"damping": "none"}) for rank in range(2)] == [8.0, 1.0]
    assert edp(0, 5, {"damping": "inverse"}) == 9.0
    plain = {"compression": "none", "accumulate": 1, "staleness": 0}
    assert dp(0, 5, plain | {"schedule": "naive"}) == 9.0
    assert dp(0, 4, plain | {"schedule": "ring"}) == 2.5
    assert dp(0, 1, plain | {"schedule": "ring"}) == 2.0
    # Three steps under way at once, and the sum of the batches before.
    assert dp(0, 4, plain | {"schedule": "ring", "staleness": 2, "accumulate": 2}) == 3 * 2.5 + 1
    # A gradient, small forms of three ranks, and a residual of twice its size.
    assert dp(0, 3, plain | {"schedule": "ring", "compression": {"kind": "top_k"}}) == 1 + 3 + 2


# before a run


def experiment(**changes: Any) -> dict[str, Any]:
    node = {"flops": "1 GFLOP/s"}
    return {
        "topology": {
            "nodes": {**{name: dict(node) for name in ("a", "b", "c")}, "sw": {"kind": "switch"}},
            "links": [{"between": [name, "sw"], "type": "ethernet-1g"} for name in ("a", "b", "c")],
        },
        "algorithm": "sync_ps",
        "workload": "mnist_mlp",
        "stop": {"steps": 1},
        **changes,
    }


TOTAL = 2 * WEIGHTS + 32 * (784 * 4 + 8) + 32 * 138 * 4 + 4 + 5000 * (784 * 4 + 8)
SERVER, WORKER = TOTAL + 6 * WEIGHTS, TOTAL + WEIGHTS
"""Three ranks of sync_ps: 2 gradients, 2 replies and the weights at the server; one set at a worker. The server is
evaluated once, in another model, whose weights are the copy that waited for it.
"""


def run(tmp_path: Path, limits: dict[str, int], **changes: Any) -> Any:
    overrides = {f"topology.nodes.{name}.memory": f"{limit} B" for name, limit in limits.items()}
    return simcluster.run(experiment(**changes), overrides=overrides, out=tmp_path / "run", report=False)


def test_what_just_fits_runs_and_a_byte_less_does_not(tmp_path: Path) -> None:
    nodes = run(tmp_path, {"a": SERVER, "b": WORKER}).summary["nodes"]
    assert {name: node["predicted_peak_bytes"] for name, node in nodes.items()} == {
        "a": SERVER,
        "b": WORKER,
        "c": WORKER,
    }
    for name, limit in (("a", SERVER), ("b", WORKER)):
        with pytest.raises(UsageError, match=rf"nodes\.{name}\.memory: found .* on {name}, 1 B too little"):
            run(tmp_path, {name: limit - 1})


def test_the_error_says_what_takes_how_much_and_groups_nodes_that_lack_the_same(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        run(tmp_path, {"a": 10**7, "b": 10**7, "c": 10**7})
    server, workers = (str(problem) for problem in error.value.problems)
    assert (
        "nodes.a.memory: found 10 MB on a, 9.095 MB too little, expected at least 19.09 MB (407.1 kB of weights"
        in server
    )
    assert "407.1 kB of evaluation, 2.035 MB of messages of sync_ps), or check_memory: false" in server
    assert "10 MB on b and c, 7.06 MB too little" in workers
    assert not (tmp_path / "run").exists()


def test_the_check_can_be_switched_off_and_is_on_again_in_no_other_run(tmp_path: Path) -> None:
    finished = run(tmp_path, {"a": 1000}, check_memory=False)
    assert finished.config["check_memory"] is False
    with pytest.raises(UsageError, match="too little"):
        run(tmp_path, {"a": 1000}, check_memory=True)
    with pytest.raises(UsageError, match="check_memory: found 3, expected true or false"):
        run(tmp_path, {}, check_memory=3)


def test_devices_without_a_memory_hold_anything(tmp_path: Path) -> None:
    assert run(tmp_path, {}).summary["status"] == "done"


def test_of_an_algorithm_of_ones_own_only_the_replica_is_counted_and_the_error_says_so(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("async def mine(node, replica):\n    pass\n")
    own = {"path": f"{tmp_path}/mine.py:mine"}
    evaluated = TOTAL + WEIGHTS  # in another model
    finished = run(tmp_path, {"a": evaluated, "b": TOTAL}, algorithm=own)
    assert {node["predicted_peak_bytes"] for node in finished.summary["nodes"].values()} == {None}
    with pytest.raises(UsageError, match=r"plus the memory of \S+mine\.py:mine, which is not counted"):
        run(tmp_path, {"a": evaluated - 1}, algorithm=own)


def test_a_model_that_cannot_compute_is_refused_as_such_and_not_by_the_check_of_memory(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(
        "import torch\nfrom torch import nn\nfrom simcluster import Workload\nfrom simcluster.workloads import sgd\n"
        "def make_workload():\n"
        "    data = (torch.ones(20, 3), torch.arange(20) % 2)\n"
        "    return Workload(lambda: nn.Linear(4, 2), nn.functional.cross_entropy, data, sgd(0.1), 4)\n"
    )
    with pytest.raises(UsageError, match="shapes cannot be multiplied"):
        run(tmp_path, {"a": 10**9}, workload={"path": f"{tmp_path}/broken.py:make_workload"})


def test_the_count_leaves_the_workload_as_it_was() -> None:
    workload = Workload(
        lambda: nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)),
        nn.functional.cross_entropy,
        (torch.ones(20, 4), torch.arange(20) % 4),
        sgd(0.1),
        5,
    )
    before = torch.get_rng_state()
    alone = workload.replica(0, 1, 0, 3)
    workload.memory()
    again = workload.replica(0, 1, 0, 3)
    assert alone.weights_sha256() == again.weights_sha256()
    assert torch.equal(before, torch.get_rng_state())


def test_memory_is_counted_once_for_a_workload(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[object] = []
    monkeypatch.setattr(counter, "count_memory", lambda *given: counted.append(given) or count_memory(*given))
    workload = mnist_mlp()
    assert workload.memory() == workload.memory()
    assert len(counted) == 1
