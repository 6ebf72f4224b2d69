"""Nodes without values share their tensors if their algorithm changes no shape in place, and do the same as before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from simcluster_backends.sim.cluster import SimCluster

import simcluster
from simcluster.algorithms import ALGORITHMS
from simcluster.algorithms.facts import Facts, facts_of
from simcluster.transport import Transport
from simcluster.workloads import Replica, mnist_mlp
from tests.support.clusters import star

SETTINGS: dict[str, list[dict[str, Any]]] = {
    "all_reduce_dp": [
        {},
        {"initial_weights": "broadcast"},
        {"staleness": 2, "accumulate": 2},
        {"bucket_bytes": 1, "accumulate": 2},
        {"compression": {"kind": "top_k", "fraction": 0.1}},
        {"compression": {"kind": "power_sgd", "rank": 1}},
        *({"schedule": name} for name in ("naive", "direct", "binomial", "recursive_doubling", "halving_doubling")),
    ],
    "edp": [
        {},
        {"pull_interval": 2, "damping": "inverse", "max_staleness": 1},
        {"push": "weights", "pull_interval": 2},
        {"compression": {"kind": "top_k", "fraction": 0.1}, "server_trains": False},
        {"compression": {"kind": "power_sgd", "rank": 1}},
    ],
    "fedbuff": [
        {"interval": 2},
        {"interval": 2, "max_staleness": 0, "buffer": 3},
        {"interval": 2, "compression": {"kind": "top_k", "fraction": 0.1}, "server_trains": False},
        {"interval": 2, "compression": {"kind": "power_sgd", "rank": 1}, "concurrency": 1},
    ],
    "sync_ps": [
        {},
        {"pull_interval": 2, "polyak": 0.5},
        {"wait_for": 2, "cancel_late": True},
        {"timeout_s": 1e-4, "server_trains": False},
        {"compression": {"kind": "top_k", "fraction": 0.1}},
    ],
}


def test_every_algorithm_that_keeps_shapes_is_here() -> None:
    assert {name for name, algorithm in ALGORITHMS.items() if facts_of(algorithm).keeps_shapes} == set(SETTINGS)


@pytest.mark.parametrize(
    ("name", "settings"), [(name, settings) for name in SETTINGS for settings in SETTINGS[name]], ids=str
)
def test_shared_tensors_keep_their_shapes_and_change_no_message(name: str, settings: dict[str, Any]) -> None:
    workload = mnist_mlp(hidden=4)

    def spans(*, keeps_shapes: bool) -> list[Any]:
        replicas = [workload.replica(rank, 3, 0, 5, numerics="none") for rank in range(3)]
        for replica in replicas:
            replica.keeps_shapes = keeps_shapes

        async def body(node: Transport) -> None:
            await ALGORITHMS[name](node, replicas[node.rank], **settings)

        cluster = SimCluster(star(3), 0)
        for result in cluster.run([body] * 3):
            if isinstance(result, BaseException):
                raise result
        assert (replicas[0].parameters[0] is replicas[1].parameters[0]) is keeps_shapes
        return [node.recorder.finish(None).spans for node in cluster.members]

    assert spans(keeps_shapes=True) == spans(keeps_shapes=False)
    assert [tensor.shape for tensor in workload.sketch.parameters] == workload.sketch.shapes


async def reads(node: Transport, replica: Replica) -> None:
    for batch in replica.batches():
        loss, gradients = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))
        node.record(step=batch.step + 1, loss=loss, shared=gradients[0] is replica.parameters[0])


@Facts(keeps_shapes=True)
async def reads_in_shape(node: Transport, replica: Replica) -> None:
    await reads(node, replica)


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "shared"), [(reads, 0.0), (reads_in_shape, 1.0)])
def test_only_algorithms_that_say_so_share(algorithm: Any, shared: float, tmp_path: Path) -> None:
    keys = {"name": "one", "topology": {"generator": "star", "workers": 3}, "workload": "mnist_mlp", "numerics": "none"}
    run = simcluster.run(keys | {"algorithm": algorithm, "stop": {"steps": 1}}, out=tmp_path / "run", report=False)
    assert run.metrics.query("name == 'shared'")["value"].tolist() == [shared] * 3
