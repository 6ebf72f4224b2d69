"""Several tasks of one node that compute at once: its device takes them one by one, in the order asked, everywhere."""

from __future__ import annotations

import asyncio
import threading
import time
from itertools import pairwise

import pytest
from simcluster_backends.sim import SimCluster
from simcluster_backends.sim.transport import SimTransport

from simcluster.testing import RunBodies
from simcluster.topology import Device
from simcluster.topology.model.stragglers import Thermal
from simcluster.transport import Cost
from tests.support.clusters import star
from tests.whole.test_conformance import on_sockets, on_the_simulator

PIECES = 4


@pytest.mark.parametrize("run_bodies", [on_the_simulator, on_sockets], ids=["sim", "sockets"])
def test_pieces_of_work_asked_for_at_once_never_overlap_and_keep_their_order(run_bodies: RunBodies) -> None:
    running: list[int] = []
    order: list[int] = []
    threads: set[str] = set()

    def piece(number: int) -> None:
        running.append(number)
        time.sleep(0.005)  # on a real device the others would have every chance to start
        assert running == [number], "two pieces at once"
        running.remove(number)
        order.append(number)
        threads.add(threading.current_thread().name)

    async def body(node) -> list[tuple[float, float]]:  # type: ignore[no-untyped-def]
        async with asyncio.TaskGroup() as group:
            for number in range(PIECES):
                group.create_task(node.compute(piece, number, cost=Cost(1e6)))
        # Noted where work ends, which on sockets is another thread than this one.
        await asyncio.sleep(0.01)
        return [(span.start_s, span.end_s) for span in node.recorder.record.spans if span.kind == "compute"]

    (spans,) = run_bodies([body])
    assert not isinstance(spans, BaseException), spans
    assert order == list(range(PIECES))
    assert len(threads) == 1
    assert len(spans) == PIECES
    assert all(end_s <= start_s for (_, end_s), (start_s, _) in pairwise(spans))


def ends(device: Device, *flops: float, cancel: tuple[int, float] | None = None) -> dict[int, float]:
    """When each of several pieces ends that are asked for at time 0; *cancel* is (which, when)."""
    cluster = SimCluster(star(1, n0=device))
    found: dict[int, float] = {}

    async def body(node: SimTransport) -> None:
        async def one(number: int, size: float) -> None:
            await node.compute(lambda: None, cost=Cost(size))
            found[number] = cluster.loop.time()

        tasks = [asyncio.create_task(one(number, size)) for number, size in enumerate(flops)]
        if cancel is not None:
            await asyncio.sleep(cancel[1])
            tasks[cancel[0]].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    (result,) = cluster.run([body])
    assert result is None, result
    return found


def test_in_the_simulator_work_waits_for_what_was_asked_before() -> None:
    # 1, 2 and 3 s of work in a row. Shared equally, they would end after 3, 5 and 6 s.
    assert ends(Device("d", 1e9), 1e9, 2e9, 3e9) == {0: 1.0, 1: 3.0, 2: 6.0}


def test_cancelled_work_makes_room_for_the_next_at_once() -> None:
    assert ends(Device("d", 1e9), 1e9, 2e9, 3e9, cancel=(1, 1.5)) == {0: 1.0, 2: 4.5}
    assert ends(Device("d", 1e9), 1e9, 2e9, 3e9, cancel=(1, 0.5)) == {0: 1.0, 2: 4.0}


def test_work_in_a_row_warms_its_device_up_as_one_piece_does() -> None:
    warm = Device("d", 1e9, straggler=Thermal(3.0, 5.0, 5.0))
    assert ends(warm, 1e9, 2e9, 3e9)[2] == pytest.approx(ends(warm, 6e9)[0], rel=1e-12)
    assert ends(warm, 1e9, 2e9, 3e9)[2] > 6.0
