"""The algorithms against one process, and every setting against doing nothing. On the simulator; see also
test_equivalence for both backends."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from simcluster_backends.sim.cluster import SimCluster
from simcluster_backends.sim.faults import SimFaults

from simcluster.algorithms import ALGORITHMS
from simcluster.errors import PeerLost
from simcluster.runs.record import NodeRecord
from simcluster.topology import Device, Topology
from simcluster.topology.model.stragglers import Constant
from simcluster.transport import Transport
from simcluster.workloads import Replica, mnist_mlp, quadratic, train_alone
from tests.support.clusters import star
from tests.support.plans import plan

STEPS, SEED = 12, 3
THE_FIRST = ("all_reduce_dp", "edp", "sync_ps")
WORKLOAD = quadratic(features=6, batch_size=4, dtype="float64")


def run(
    name: str, topology: Topology, faults: tuple[str, ...] = (), **settings: Any
) -> tuple[list[Any], list[Replica], list[NodeRecord]]:
    size = len(topology.workers)
    replicas = [WORKLOAD.replica(rank, size, SEED, STEPS) for rank in range(size)]

    async def body(node: Transport) -> None:
        await ALGORITHMS[name](node, replicas[node.rank], **settings)

    cluster = SimCluster(topology, SEED, faults=SimFaults(plan(topology, *faults)))
    results = cluster.run([body] * size)
    return results, replicas, [node.recorder.finish(None) for node in cluster.members]


def done(results: list[Any]) -> None:
    for result in results:
        if isinstance(result, BaseException):
            raise result


def values(record: NodeRecord, name: str) -> list[float]:
    return [metric.value for metric in record.metrics if metric.name == name]


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize(
    ("name", "settings"),
    [("sync_ps", {}), ("all_reduce_dp", {"schedule": "ring"}), ("all_reduce_dp", {"schedule": "naive"})],
)
def test_n_nodes_compute_what_one_process_computes(name: str, settings: dict[str, Any], size: int) -> None:
    results, replicas, _ = run(name, star(size), **settings)
    done(results)
    alone = train_alone(WORKLOAD, size, SEED, STEPS)
    for replica in replicas:
        for mine, reference in zip(replica.parameters, alone, strict=True):
            torch.testing.assert_close(mine, reference, rtol=1e-12, atol=1e-12)


def test_edp_alone_is_one_process() -> None:
    results, replicas, _ = run("edp", star(1))
    done(results)
    for mine, reference in zip(replicas[0].parameters, train_alone(WORKLOAD, 1, SEED, STEPS), strict=True):
        assert torch.equal(mine, reference)


def traces(name: str, topology: Topology, *alternatives: dict[str, Any]) -> list[str]:
    seen = []
    for settings in alternatives:
        results, _, records = run(name, topology, **settings)
        done(results)
        seen.append("".join(record.digest for record in records))
    return seen


def slow(compute_s: float) -> Topology:
    """A star of three whose n2 takes *compute_s* for a gradient, and the others next to nothing; 50 us of latency."""
    flops = WORKLOAD.replica(0, 3, SEED, 1).gradient_cost(next(WORKLOAD.replica(0, 3, SEED, 1).batches())).flops
    return star(3, n2=Device("slow", 3 * flops / compute_s, straggler=Constant(3.0)))


SLOW = slow(1e-3)


@pytest.mark.parametrize(
    ("name", "alternatives"),
    [
        ("sync_ps", [{}, {"pull_interval": 3}]),
        ("sync_ps", [{}, {"polyak": 0.5}]),
        ("sync_ps", [{}, {"timeout_s": 1e-4}]),
        ("all_reduce_dp", [{}, {"schedule": "naive"}]),
        ("all_reduce_dp", [{}, {"initial_weights": "broadcast"}]),
        ("edp", [{}, {"pull_interval": 3}]),
        ("edp", [{}, {"max_staleness": 8}, {"max_staleness": 1}]),
        ("edp", [{}, {"damping": "inverse"}]),
    ],
    ids=lambda value: value if isinstance(value, str) else next(iter(value[-1])),
)
def test_every_setting_changes_the_trace(name: str, alternatives: list[dict[str, Any]]) -> None:
    seen = traces(name, SLOW, *alternatives)
    assert len(set(seen)) == len(alternatives)


def test_the_same_settings_give_the_same_trace() -> None:
    for name in THE_FIRST:
        assert len(set(traces(name, SLOW, {}, {}))) == 1


# all_reduce_dp


def test_a_broadcast_makes_replicas_agree_that_were_not_born_equal() -> None:
    steps = 3

    async def body(node: Transport, replica: Replica) -> None:
        replica.load([parameter + node.rank for parameter in replica.parameters])
        await ALGORITHMS["all_reduce_dp"](node, replica, initial_weights="broadcast")

    replicas = [WORKLOAD.replica(rank, 3, SEED, steps) for rank in range(3)]
    done(SimCluster(star(3)).run([lambda node: body(node, replicas[node.rank])] * 3))
    for replica in replicas:  # rank 0 had added nothing
        torch.testing.assert_close(replica.parameters, train_alone(WORKLOAD, 3, SEED, steps), rtol=1e-12, atol=1e-12)


# sync_ps


def test_a_time_out_divides_by_the_number_really_summed() -> None:
    # A round trip is 100 us: the worker on time is there 0.1 ms after the server's own gradient, n2 after 60 ms.
    results, replicas, records = run("sync_ps", slow(60e-3), timeout_s=0.3e-3)
    done(results)
    contributions = values(records[0], "contributions")
    assert len(contributions) == STEPS
    assert set(contributions) == {2.0}, "the slow worker is never in time, the other always"
    # The same steps by one process: the mean of ranks 0 and 1 alone.
    alone = WORKLOAD.replica(0, 3, SEED, STEPS)
    other = WORKLOAD.replica(1, 3, SEED, STEPS)
    for mine, theirs in zip(alone.batches(), other.batches(), strict=True):
        _, a = alone.loss_and_gradients(mine)
        _, b = alone.loss_and_gradients(theirs)
        alone.apply([(x + y) / 2 for x, y in zip(a, b, strict=True)])
    torch.testing.assert_close(replicas[0].parameters, alone.parameters, rtol=1e-12, atol=1e-12)


def test_a_late_gradient_is_counted_rejected_and_its_worker_brought_up_to_date() -> None:
    # A step takes 0.3 ms, the time-out; n2 computes for 0.7 ms, so it misses steps and then catches one.
    results, replicas, records = run("sync_ps", slow(0.7e-3), timeout_s=0.3e-3)
    done(results)
    assert sum(values(records[0], "late")) > 0
    pushes = records[2].sent_to[0][0]
    assert pushes < STEPS, "a worker that is behind skips the steps it missed"
    assert torch.equal(replicas[2].parameters[0], replicas[0].parameters[0]), "everyone ends with the final weights"


def test_between_pulls_a_worker_goes_on_with_its_own_gradients() -> None:
    _, replicas, records = run("sync_ps", star(2), pull_interval=STEPS + 1)
    alone = WORKLOAD.replica(1, 2, SEED, STEPS)
    for batch in alone.batches():
        alone.apply(alone.loss_and_gradients(batch)[1])
    assert torch.equal(replicas[1].parameters[0], alone.parameters[0])
    # pushes carry a gradient (6 float64); no reply carries any
    assert records[0].bytes_sent < 100 * STEPS < records[1].bytes_sent


def test_polyak_moves_towards_the_weights_after_the_servers_step() -> None:
    _, replicas, _ = run("sync_ps", star(2), polyak=0.25)
    server, worker = (WORKLOAD.replica(rank, 2, SEED, STEPS) for rank in range(2))
    for own, theirs in zip(server.batches(), worker.batches(), strict=True):
        _, a = server.loss_and_gradients(own)
        _, b = worker.loss_and_gradients(theirs)
        server.apply([(x + y) / 2 for x, y in zip(a, b, strict=True)])
        worker.load([0.75 * mine + 0.25 * new for mine, new in zip(worker.parameters, server.parameters, strict=True)])
    torch.testing.assert_close(replicas[1].parameters, worker.parameters, rtol=1e-12, atol=1e-12)


def test_the_order_in_which_gradients_arrive_changes_no_bit() -> None:
    weights = []
    for last in ("n1", "n3"):
        results, replicas, _ = run("sync_ps", star(4, **{last: Device("slow", 1e5)}))
        done(results)
        weights.append(replicas[0].weights_sha256())
    assert weights[0] == weights[1]


def test_a_lost_worker_ends_a_synchronous_run() -> None:
    for name in ("zero", "all_reduce_dp"):  # nobody is here who would form the group anew
        results, _, _ = run(name, SLOW, faults=("kind: crash, node: n2, at: 1 ms",))
        assert any(isinstance(result, (PeerLost, ExceptionGroup)) for result in results[:2]), name


# edp


def test_staleness_is_counted_from_the_download_to_the_arrival() -> None:
    # With one gradient in flight per node the mean over applied gradients is n-1, less what the first and last rounds
    # lack: the sum telescopes to the versions at which each node's last gradient is applied, less the 3 STEPS applied.
    results, _, records = run("edp", star(3, bandwidth_Bps=1e15, latency_s=0.0))
    done(results)
    staleness = values(records[0], "staleness")
    assert len(staleness) == 3 * STEPS
    assert staleness[0] == 0.0
    assert 2.0 - 6 / STEPS <= sum(staleness) / len(staleness) <= 2.0 - 1 / STEPS


@pytest.mark.parametrize(("damping", "divisor"), [("none", 1), ("inverse", STEPS)])
def test_a_stale_gradient_is_divided_by_its_staleness_if_asked_for(damping: str, divisor: int) -> None:
    # n1 computes for more than all STEPS of the server take: its first gradient is STEPS versions stale. From its first
    # pull on it is alone, and never stale again.
    results, replicas, records = run("edp", star(2, n1=Device("slow", 1.0)), damping=damping)
    done(results)
    assert values(records[0], "staleness") == [0.0] * STEPS + [STEPS] + [0.0] * (STEPS - 1)
    server, worker = (WORKLOAD.replica(rank, 2, SEED, STEPS) for rank in range(2))
    for batch in server.batches():
        server.apply(server.loss_and_gradients(batch)[1])
    for step, batch in enumerate(worker.batches()):
        gradients = worker.loss_and_gradients(batch)[1]
        server.apply([gradient / (1 if step else divisor) for gradient in gradients])
        worker.load(server.parameters)
    torch.testing.assert_close(replicas[0].parameters, server.parameters, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(replicas[1].parameters, server.parameters, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("max_staleness", "rejected"), [(STEPS, 0), (STEPS - 1, 1)])
def test_a_gradient_exactly_at_the_bound_is_taken(max_staleness: int, rejected: int) -> None:
    # As above: one push is STEPS versions stale, all others are fresh.
    _, _, records = run("edp", star(2, n1=Device("slow", 1.0)), max_staleness=max_staleness)
    assert len(values(records[0], "rejected")) == rejected
    assert len(values(records[0], "loss")) == 2 * STEPS - rejected


def test_between_pulls_an_asynchronous_worker_takes_its_own_gradients_step_once() -> None:
    _, replicas, _ = run("edp", star(2), pull_interval=STEPS + 1)
    alone = WORKLOAD.replica(1, 2, SEED, STEPS)
    for batch in alone.batches():
        alone.apply(alone.loss_and_gradients(batch)[1])
    assert torch.equal(replicas[1].parameters[0], alone.parameters[0])


def test_a_bound_on_staleness_rejects_what_is_staler_and_every_push_is_accounted_for() -> None:
    _, _, records = run("edp", SLOW, max_staleness=1)
    staleness = values(records[0], "staleness")
    rejected = int(max(values(records[0], "rejected"), default=0))
    applied = len(values(records[0], "loss"))
    assert rejected > 0
    assert applied + rejected == len(staleness) == 3 * STEPS, "pushed = applied + rejected"
    assert sum(value <= 1 for value in staleness) == applied


def test_edp_goes_on_without_a_lost_worker() -> None:
    results, replicas, records = run("edp", SLOW, faults=("kind: crash, node: n2, at: 1 ms",))
    assert results[0] is None
    assert results[1] is None
    applied = len(values(records[0], "loss"))
    assert 2 * STEPS <= applied < 3 * STEPS
    assert torch.isfinite(replicas[0].parameters[0]).all()


@pytest.mark.slow
def test_real_digits_are_learnt_by_all_three() -> None:
    workload = mnist_mlp()
    for name in THE_FIRST:
        replicas = [workload.replica(rank, 3, 0, 150) for rank in range(3)]

        async def body(node: Transport, name: str = name, replicas: list[Replica] = replicas) -> None:
            await ALGORITHMS[name](node, replicas[node.rank])

        done(SimCluster(star(3)).run([body] * 3))
        assert replicas[0].evaluate()["accuracy"] >= 0.88, name
