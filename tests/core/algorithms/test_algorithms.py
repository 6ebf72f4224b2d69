"""What is late or stale in the algorithms of the quickstart, against one process."""

from __future__ import annotations

import pytest
import torch
from simcluster_backends.sim.cluster import SimCluster

from simcluster.algorithms import ALGORITHMS
from simcluster.topology import Device, Topology
from simcluster.topology.model.stragglers import Constant
from simcluster.transport import Transport
from simcluster.workloads import Replica, train_alone
from tests.core.algorithms.trained import SEED, WORKLOAD, train
from tests.support.clusters import star

STEPS = 12


def slow(compute_s: float) -> Topology:
    """A star of three whose n2 takes *compute_s* for a gradient, and the others next to nothing; 50 us of latency."""
    flops = WORKLOAD.replica(0, 3, SEED, 1).gradient_cost(next(WORKLOAD.replica(0, 3, SEED, 1).batches())).flops
    return star(3, n2=Device("slow", 3 * flops / compute_s, straggler=Constant(3.0)))


# all_reduce_dp


def test_a_broadcast_makes_replicas_agree_that_were_not_born_equal() -> None:
    steps = 3

    async def body(node: Transport, replica: Replica) -> None:
        replica.load([parameter + node.rank for parameter in replica.parameters])
        await ALGORITHMS["all_reduce_dp"](node, replica, initial_weights="broadcast")

    replicas = [WORKLOAD.replica(rank, 3, SEED, steps) for rank in range(3)]
    assert SimCluster(star(3)).run([lambda node: body(node, replicas[node.rank])] * 3) == [None] * 3
    for replica in replicas:  # rank 0 had added nothing
        torch.testing.assert_close(replica.parameters, train_alone(WORKLOAD, 3, SEED, steps), rtol=1e-12, atol=1e-12)


# sync_ps


def test_a_time_out_divides_by_the_number_really_summed() -> None:
    # A round trip is 100 us: the worker on time is there 0.1 ms after the server's own gradient, n2 after 60 ms.
    run = train("sync_ps", slow(60e-3), timeout_s=0.3e-3)
    contributions = run.values(0, "contributions")
    assert len(contributions) == STEPS
    assert set(contributions) == {2.0}, "the slow worker is never in time, the other always"
    # The same steps by one process: the mean of ranks 0 and 1 alone.
    alone = WORKLOAD.replica(0, 3, SEED, STEPS)
    other = WORKLOAD.replica(1, 3, SEED, STEPS)
    for mine, theirs in zip(alone.batches(), other.batches(), strict=True):
        _, a = alone.loss_and_gradients(mine)
        _, b = alone.loss_and_gradients(theirs)
        alone.apply([(x + y) / 2 for x, y in zip(a, b, strict=True)])
    torch.testing.assert_close(run.replicas[0].parameters, alone.parameters, rtol=1e-12, atol=1e-12)


# edp


@pytest.mark.parametrize(("damping", "divisor"), [("none", 1), ("inverse", STEPS)])
def test_a_stale_gradient_is_divided_by_its_staleness_if_asked_for(damping: str, divisor: int) -> None:
    # n1 computes for more than all STEPS of the server take: its first gradient is STEPS versions stale. From its first
    # pull on it is alone, and never stale again.
    run = train("edp", star(2, n1=Device("slow", 1.0)), damping=damping)
    assert run.values(0, "staleness") == [0.0] * STEPS + [STEPS] + [0.0] * (STEPS - 1)
    server, worker = (WORKLOAD.replica(rank, 2, SEED, STEPS) for rank in range(2))
    for batch in server.batches():
        server.apply(server.loss_and_gradients(batch)[1])
    for step, batch in enumerate(worker.batches()):
        gradients = worker.loss_and_gradients(batch)[1]
        server.apply([gradient / (1 if step else divisor) for gradient in gradients])
        worker.load(server.parameters)
    torch.testing.assert_close(run.replicas[0].parameters, server.parameters, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(run.replicas[1].parameters, server.parameters, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("max_staleness", "rejected"), [(STEPS, 0), (STEPS - 1, 1)])
def test_a_gradient_exactly_at_the_bound_is_taken(max_staleness: int, rejected: int) -> None:
    # As above: one push is STEPS versions stale, all others are fresh.
    run = train("edp", star(2, n1=Device("slow", 1.0)), max_staleness=max_staleness)
    assert len(run.values(0, "rejected")) == rejected
    assert len(run.values(0, "loss")) == 2 * STEPS - rejected


def test_between_pulls_an_asynchronous_worker_takes_its_own_gradients_step_once() -> None:
    run = train("edp", star(2), pull_interval=STEPS + 1)
    alone = WORKLOAD.replica(1, 2, SEED, STEPS)
    for batch in alone.batches():
        alone.apply(alone.loss_and_gradients(batch)[1])
    assert torch.equal(run.replicas[1].parameters[0], alone.parameters[0])
