"""A user's file with the whole API in it; tests/whole/test_types.py checks its types, and its cell-like parts run."""

from __future__ import annotations

import functools

import networkx
import torch
from torch import nn

import simcluster
from simcluster import Replica, Run, Topology, Transport, Workload
from simcluster.algorithms import steps
from simcluster.collectives import flatten, ring_all_reduce, unflatten
from simcluster.workloads import sgd


async def my_algorithm(node: Transport, replica: Replica, *, interval: int = 2) -> None:
    async for step, batch in steps(replica):
        loss, gradients = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))
        await node.compute(replica.apply, gradients, cost=replica.apply_cost())
        if step % interval == 0:
            total = await ring_all_reduce(node, flatten(replica.parameters), f"average/{step}")
            replica.load(unflatten(total / node.size, replica.parameters))
        node.record(step=step, loss=loss)


def my_workload(*, learning_rate: float = 0.1) -> Workload:
    inputs, targets = torch.ones(60, 4), torch.zeros(60).long()
    return Workload(lambda: nn.Linear(4, 2), nn.functional.cross_entropy, (inputs, targets), sgd(learning_rate), 4)


def main() -> Run:
    graph: networkx.Graph[str] = networkx.path_graph(3)
    cluster = Topology.from_networkx(graph, device="raspberry-pi-5", bandwidth="1 Gbps", latency="50 us")
    run = simcluster.run(
        "quickstart", algorithm=functools.partial(my_algorithm, interval=1), workload=my_workload, topology=cluster,
        stop={"steps": 2}, report=False,
    )  # fmt: skip
    again = simcluster.run(topology=Topology.star(2), algorithm="edp", workload=my_workload(), stop={"steps": 2})
    few = {"stop.steps": 2}
    table = simcluster.sweep("quickstart", {"algorithm": ["edp", my_algorithm]}, overrides=few, jobs=1).table
    answer: str = simcluster.whatif("quickstart", "step-time", overrides=few, seeds=1, jobs=1, report=False).answer
    verified: bool = simcluster.verify(my_algorithm, quick=True, backend="sim", only=["alone"]).ok
    print(len(table), answer, verified, simcluster.compare(run, again.folder).describe())
    loss: float = run.summary["loss"] or 0.0
    return simcluster.load_run(run.folder) if loss >= 0 else again


if __name__ == "__main__":
    print(main().summary["steps"])
