"""Pieces of work without a task in between, against the same pieces awaited one by one: equal times, order, spans."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from operator import add
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from simcluster.errors import Deadlock
from simcluster.forwarding import Forwarding
from simcluster.topology import Device, Topology
from simcluster.topology.model.stragglers import Lognormal, Thermal
from simcluster.transport import Cost
from simcluster_backends.sim.cluster import Cluster
from simcluster_backends.sim.faults import Faults
from simcluster_backends.sim.transport import SimTransport
from tests.support.clusters import IDEAL, now, star
from tests.support.plans import plan

Log = list[tuple[float, int, int, str]]
Op = tuple[str, Any]

SECONDS = st.sampled_from([0.0, 1.0, 1.0, 2.0, 3.0, 0.1, 1e-30])  # many end at equal times; one is below the resolution
COSTS = st.lists(SECONDS, max_size=6)
OP = st.one_of(
    st.tuples(st.just("spend"), COSTS),
    st.tuples(st.just("fail"), COSTS),
    st.tuples(st.just("compute"), SECONDS),
    st.tuples(st.just("sleep"), SECONDS),
    st.tuples(st.just("limit"), st.tuples(SECONDS, COSTS)),
)
TASKS = st.lists(st.lists(OP, max_size=4), min_size=1, max_size=3)
FAULT = st.tuples(st.sampled_from(["hang", "crash", "slow", "restart"]), st.integers(0, 2), st.integers(1, 6))


def cost(seconds: float) -> Cost:
    return Cost(seconds * IDEAL.flops_per_s)


class OneByOne(Forwarding):
    """A node that has only the verbs of the interface, and awaits each piece of work."""

    async def spend(self, costs: Iterable[Cost]) -> None:
        for each in costs:
            await self.compute(int, cost=each)


def node_of(program: list[list[Op]], log: Log, wrap: Callable[[SimTransport], Any]) -> Callable[[SimTransport], Any]:
    """A node with a task for each list of *program*, which writes to *log* in the order of events."""

    async def life(given: SimTransport) -> None:
        node, rank = wrap(given), given.rank

        def costs(task: int, seconds: list[float], error: bool = False) -> Iterator[Cost]:
            for each in seconds:
                log.append((now(), rank, task, f"draws {each}"))
                yield cost(each)
            if error:
                raise ArithmeticError

        async def obey(task: int, op: str, what: Any) -> None:
            if op in ("spend", "fail"):
                await node.spend(costs(task, what, error=op == "fail"))
            elif op == "compute":
                await node.compute(int, cost=cost(what))
            elif op == "sleep":
                await asyncio.sleep(what)
            else:
                async with asyncio.timeout(what[0]):
                    await node.spend(costs(task, what[1]))

        async def do(task: int, ops: list[Op]) -> None:
            for op, what in ops:
                outcome = ""
                try:
                    await obey(task, op, what)
                except (TimeoutError, ArithmeticError) as error:
                    outcome = type(error).__name__
                except asyncio.CancelledError:
                    log.append((now(), rank, task, f"{op} is cancelled"))
                    raise
                log.append((now(), rank, task, f"{op} {outcome}"))

        async with asyncio.TaskGroup() as group:
            for number, ops in enumerate(program):
                group.create_task(do(number, ops))

    return life


def outcome_of(programs: list[list[list[Op]]], topology: Topology, faults: str, *, whole: bool) -> list[Any]:
    log: Log = []
    cluster = Cluster(topology, faults=Faults(plan(topology, *([faults] if faults else []))))
    bodies = [node_of(program, log, (lambda node: node) if whole else OneByOne) for program in programs]
    cluster.run(bodies)
    return [
        log,
        [(m.recorder.record.spans, m.recorder.record.finished_s) for m in cluster.members],
        cluster.loop.time(),
    ]


def worded(fault: tuple[str, int, int]) -> str:
    kind, rank, at = fault
    more = {"hang": "for: 2 s", "crash": "", "slow": "for: 2 s, factor: 3", "restart": "after: 1 s"}[kind]
    return f"kind: {kind}, node: n{rank}, at: {at} s" + (f", {more}" if more else "")


LIKE_ITS_NEIGHBOUR = [("spend", [1.0, 1.0, 1.0, 1.0])]


@settings(max_examples=300, deadline=None)
@given(st.tuples(TASKS, TASKS, TASKS), st.one_of(st.none(), FAULT), st.booleans())
@example(([LIKE_ITS_NEIGHBOUR], [LIKE_ITS_NEIGHBOUR], [LIKE_ITS_NEIGHBOUR]), None, False)
@example(([LIKE_ITS_NEIGHBOUR], [LIKE_ITS_NEIGHBOUR], [[("compute", 1.0), ("spend", [1.0, 1.0])]]), None, False)
@example(([LIKE_ITS_NEIGHBOUR, [("sleep", 1.0), ("compute", 1.0)]], [LIKE_ITS_NEIGHBOUR], [[]]), None, True)
@example(([LIKE_ITS_NEIGHBOUR], [[("limit", (2.0, [1.0, 1.0, 1.0]))]], [LIKE_ITS_NEIGHBOUR]), ("hang", 1, 2), False)
def test_a_stint_is_to_the_bit_and_in_the_order_of_events_what_its_pieces_are(
    programs: tuple[list[list[Op]], ...], fault: tuple[str, int, int] | None, straggles: bool
) -> None:
    slow = {"n1": Device("d", 1e9, straggler=Lognormal(0.5)), "n2": Device("d", 1e9, straggler=Thermal(2.0, 1.0, 1.0))}
    topology = star(3, **(slow if straggles else {}))
    faults = worded(fault) if fault is not None else ""
    pieces, stints = (outcome_of([*programs], topology, faults, whole=whole) for whole in (False, True))
    assert stints == pieces


def test_nodes_in_step_share_events_and_a_task_is_resumed_once() -> None:
    async def body(node: SimTransport) -> float:
        await node.spend(cost(1.0) for _ in range(1000))
        return now()

    cluster = Cluster(star(50))
    assert cluster.run([body] * 50) == [1000.0] * 50
    assert cluster.loop.turns < 10 * 50


def test_a_stint_that_is_called_off_does_not_move_the_clock() -> None:
    async def body(node: SimTransport) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.5):
                await node.spend([cost(1.0), cost(100.0)])
        await node.recv()

    cluster = Cluster(star(3))
    with pytest.raises(Deadlock, match=r"deadlock at 1\.5 s"):
        cluster.run([body] * 3)
    assert [(span.start_s, span.end_s) for span in cluster.members[2].recorder.record.spans] == [(0.0, 1.0), (1.0, 1.5)]


def test_times_are_added_piece_by_piece() -> None:
    async def body(node: SimTransport) -> None:
        await node.spend([cost(0.1)] * 10)

    cluster = Cluster(star(1))
    cluster.run([body])
    assert cluster.loop.time() == reduce(add, [0.1] * 10) != 1.0
