"""The promises of the transport, the same bodies on every backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from simcluster.testing import CHECKS, CHECKS_OF_RESETS, CHECKS_OF_RETURNS, Body, RunBodies, check_transport
from simcluster.transport import Transport
from tests.support.clusters import star
from tests.support.plans import plan


def on_the_simulator(bodies: Sequence[Body]) -> list[Any]:
    from simcluster_backends.sim import run_bodies

    return run_bodies(bodies, star(len(bodies)))


def with_faults_later(bodies: Sequence[Body]) -> list[Any]:
    """On the streams of a cluster that has a fault plan, of which nothing has happened yet, or all is over."""
    from simcluster_backends.sim import SimCluster
    from simcluster_backends.sim.faults import SimFaults

    topology = star(len(bodies))
    over = ("cut", "latency, add: 1 s", "loss, probability: 0.5", "bandwidth, factor: 0.5")
    faults = [f"kind: {kind}, link: n0-sw, at: 0 s, for: 1 ns" for kind in over]
    hang = "kind: hang, node: n0, at: 1 h, for: 1 s"
    return SimCluster(topology, faults=SimFaults(plan(topology, *faults, hang))).run(bodies)


def on_sockets(bodies: Sequence[Body]) -> list[Any]:
    from tests.support.socket_cluster import run_bodies

    return run_bodies(bodies)


def on_torch(bodies: Sequence[Body]) -> list[Any]:
    from tests.support.torch_cluster import run_bodies

    return run_bodies(bodies)


@pytest.mark.parametrize(
    ("run_bodies", "more"), [(on_the_simulator, set()), (on_sockets, set()), (on_torch, {"carries"})]
)
def test_an_algorithm_is_given_the_verbs_of_the_interface_and_cannot_end_a_node(
    run_bodies: RunBodies, more: set[str]
) -> None:
    def verbs(kind: object) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    async def body(node: Transport) -> set[str]:
        return verbs(node)

    assert run_bodies([body]) == [verbs(Transport) | {"recorder"} | more]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize(
    "run_bodies", [on_the_simulator, with_faults_later, on_sockets], ids=["sim", "faults", "sockets"]
)
def test_promise(check: Callable[[RunBodies], None], run_bodies: RunBodies) -> None:
    check(run_bodies)


def that_return_on_the_simulator(bodies: Sequence[Body]) -> list[Any]:
    from simcluster_backends.sim import run_bodies

    return run_bodies(bodies, star(len(bodies)), comes_back=True)


@pytest.mark.parametrize("check", CHECKS_OF_RETURNS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("run_bodies", [that_return_on_the_simulator, on_sockets], ids=["sim", "sockets"])
def test_promise_of_those_that_come_back(check: Callable[[RunBodies], None], run_bodies: RunBodies) -> None:
    check(run_bodies)


def with_resets_on_the_simulator(bodies: Sequence[Body]) -> list[Any]:
    from simcluster_backends.sim import SimCluster
    from simcluster_backends.sim.faults import SimFaults

    topology = star(len(bodies))
    groups = [[name] for name in topology.workers]
    resets = {"kind": "reset", "groups": groups, "at": "0 s", "every": "190 us", "times": 300}
    faults = plan(topology, resets) if len(bodies) > 1 else ()
    return SimCluster(topology, faults=SimFaults(faults)).run(bodies)


def with_resets_on_sockets(bodies: Sequence[Body]) -> list[Any]:
    from tests.support.socket_cluster import run_bodies

    return run_bodies(bodies, resets_every_s=0.02)


@pytest.mark.parametrize("check", [*CHECKS_OF_RESETS, *CHECKS], ids=lambda check: check.__name__)
@pytest.mark.parametrize("run_bodies", [with_resets_on_the_simulator, with_resets_on_sockets], ids=["sim", "sockets"])
def test_promise_over_connections_that_break(check: Callable[[RunBodies], None], run_bodies: RunBodies) -> None:
    check(run_bodies)


def test_a_backend_that_breaks_a_promise_is_told_which() -> None:
    def reversed_ranks(bodies: Sequence[Body]) -> list[Any]:
        return on_the_simulator(bodies)[::-1]

    with pytest.raises(AssertionError, match="a_node_knows_rank_size_and_peers"):
        check_transport(reversed_ranks)
