"""One algorithm file, two backends: where the result does not depend on arrival, the same weights to the bit, and the
same bytes and messages; and N nodes compute what one process computes on the joined batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from simcluster_backends.sim.cluster import SimCluster

import simcluster
from simcluster.algorithms import ALGORITHMS
from simcluster.transport import Transport
from simcluster.workloads import Replica, mnist_mlp, train_alone
from tests.support.clusters import star

SYNCHRONOUS = [
    ("sync_ps", {}),
    ("all_reduce_dp", {"schedule": "ring"}),
    ("all_reduce_dp", {"schedule": "naive", "initial_weights": "broadcast"}),
]
IDS = ["sync_ps", "ring", "naive"]


def experiment(size: int, algorithm: dict[str, Any], steps: int = 12, **workload: Any) -> dict[str, Any]:
    nodes: dict[str, Any] = {f"n{i}": {"device": "x86-laptop"} for i in range(size)}
    links = [{"between": [f"n{i}", "sw"], "type": "ethernet-1g"} for i in range(size)]
    return {
        "name": "equivalence",
        "topology": {"name": "star", "nodes": {**nodes, "sw": {"kind": "switch"}}, "links": links},
        "algorithm": algorithm,
        "workload": {"name": "mnist_mlp", "hidden": 32, **workload},
        "stop": {"steps": steps},
        "seed": 5,
    }


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize(("name", "settings"), SYNCHRONOUS, ids=IDS)
def test_simulator_and_sockets_agree_to_the_bit(name: str, settings: dict[str, Any], size: int, tmp_path: Path) -> None:
    source = experiment(size, {"name": name, **settings})
    simulated = simcluster.run(source, out=tmp_path / "sim", report=False)
    real = simcluster.run(source, backend="sockets", out=tmp_path / "sockets", report=False)
    for key in ("weights_sha256", "bytes_sent", "messages_sent", "steps", "loss", "accuracy"):
        assert simulated.summary[key] == real.summary[key], key
    for node, numbers in simulated.summary["nodes"].items():
        for key in ("weights_sha256", "bytes_sent", "bytes_received", "messages_sent"):
            assert numbers[key] == real.summary["nodes"][node][key], f"{key} of {node}"
    for link, numbers in simulated.summary["links"].items():
        assert numbers["bytes"] == real.summary["links"][link]["bytes"] > 0, link


@pytest.mark.slow
def test_momentum_adam_and_uneven_shards_agree_too(tmp_path: Path) -> None:
    for index, workload in enumerate(
        [
            {"optimizer": "adamw", "learning_rate": 0.001},
            {
                "momentum": 0.9,
                "learning_rate": 0.02,
                "partition": "dirichlet",
                "alpha": 0.3,
                "clip_norm": 1.0,
            },
        ]
    ):
        source = experiment(3, {"name": "sync_ps"}, **workload)
        runs = [
            simcluster.run(source, backend=backend, out=tmp_path / f"{backend}{index}", report=False)
            for backend in ("sim", "sockets")
        ]
        assert runs[0].summary["weights_sha256"] == runs[1].summary["weights_sha256"]


@pytest.mark.slow
def test_an_asynchronous_algorithm_keeps_its_invariants_on_both(tmp_path: Path) -> None:
    steps, size = 12, 3
    for backend in ("sim", "sockets"):
        run = simcluster.run(
            experiment(size, {"name": "edp"}, steps), backend=backend, out=tmp_path / backend, report=False
        )
        server = run.metrics[(run.metrics.node == "n0") & (run.metrics.name == "staleness")]
        assert len(server) == size * steps, "every push is applied once"
        assert (server.value >= 0).all()
        assert server.value.mean() <= size - 1
        assert run.summary["messages_sent"] == 2 * (size - 1) * steps


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize(("name", "settings"), SYNCHRONOUS, ids=IDS)
def test_n_nodes_give_the_weights_of_one_process(name: str, settings: dict[str, Any], size: int) -> None:
    workload, steps, seed = mnist_mlp(hidden=32), 12, 5
    replicas = [workload.replica(rank, size, seed, steps) for rank in range(size)]

    async def body(node: Transport, replicas: list[Replica] = replicas) -> None:
        await ALGORITHMS[name](node, replicas[node.rank], **settings)

    for result in SimCluster(star(size)).run([body] * size):
        assert result is None, result
    for replica in replicas:
        for mine, alone in zip(replica.parameters, train_alone(workload, size, seed, steps), strict=True):
            # relative to the tensor's own size: single weights may be near zero
            assert float((mine - alone).abs().max()) <= 1e-5 * float(alone.abs().max())
        assert torch.equal(replica.parameters[0], replicas[0].parameters[0])
