"""A rank that is cancelled in a schedule has done what it would have done until then."""

from __future__ import annotations

import asyncio

import pytest

from simcluster.collectives.ring import ring_all_reduce
from simcluster.errors import PeerLost
from simcluster.transport import Transport
from tests.backends.sim.lookahead.oracle import SCHEDULES, nothing, now, same
from tests.support.clusters import star


@pytest.mark.parametrize("schedule", ["ring", "tree_near", "halving_far", "pairwise_reduce_scatter"])
@pytest.mark.parametrize("inbox_bytes", [0, 10**9])
@pytest.mark.parametrize("late_s", [0.0, 1e-3])
def test_a_rank_that_is_cancelled_as_it_enters(schedule: str, inbox_bytes: int, late_s: float) -> None:
    async def body(node: Transport) -> list[object]:
        found: list[object] = []
        await asyncio.sleep(late_s * (node.rank == 3))
        try:
            async with asyncio.timeout(0.0 if node.rank == 3 else None):
                await SCHEDULES[schedule](node, 16000, "s")
        except (TimeoutError, PeerLost, ExceptionGroup) as error:
            found.append(str(error))
        found.append(now())
        await asyncio.sleep(1.0)
        return found

    same(star(4), body, inbox_bytes=inbox_bytes)


def test_a_held_rank_that_is_cancelled_has_sent_what_left_until_then() -> None:
    async def body(node: Transport) -> tuple[int, float]:
        await asyncio.sleep(1e-3 * (node.rank == 3))
        if node.rank == 0:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(600e-6):
                    await ring_all_reduce(node, nothing(16000), "r")
            return 0, now()
        if node.rank == 3:
            return 3, now()
        with pytest.raises(PeerLost):
            await ring_all_reduce(node, nothing(16000), "r")
        return node.rank, now()

    same(star(4), body)
