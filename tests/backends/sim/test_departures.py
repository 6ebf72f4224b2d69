"""News of a departure reaches each node that waits for it, whenever its wait began."""

from __future__ import annotations

import asyncio

import pytest

from simcluster.errors import ENDED, PeerLost
from simcluster.transport import ANY, Any_, Transport
from tests.support.clusters import now, run, star


async def ends_at(node: Transport, end_s: float) -> None:
    await asyncio.sleep(end_s)


async def loss(node: Transport, source: int | Any_, begin_s: float) -> tuple[int, float, str]:
    """Wait from *begin_s* on for *source*, which gets no message; return (rank, time, reason) of the loss."""
    await asyncio.sleep(begin_s)
    with pytest.raises(PeerLost) as lost:
        await node.recv(source)
    return lost.value.rank, now(), lost.value.reason


@pytest.mark.parametrize("begin_s", [0.0, 1.5])
@pytest.mark.parametrize("source", [2, ANY], ids=["rank", "any"])
def test_a_wait_that_outlasts_one_departure_ends_at_the_next(source: int | Any_, begin_s: float) -> None:
    # n1 ends at 1 s and n2 at 2 s; news takes two latencies of 0.1 s. ANY fails only once no peer is left.
    ends = run(
        star(3, latency_s=0.1),
        lambda node: loss(node, source, begin_s),
        lambda node: ends_at(node, 1.0),
        lambda node: ends_at(node, 2.0),
    )
    assert ends[0] == (2, pytest.approx(2.2), ENDED)


def test_a_wait_that_begins_after_all_departures_ends_at_once() -> None:
    ends = run(star(2), lambda node: loss(node, 1, 3.0), lambda node: ends_at(node, 1.0))
    assert ends[0] == (1, 3.0, ENDED)


def test_peers_shrink_with_each_departure_that_is_known() -> None:
    async def looks(node: Transport) -> list[tuple[int, ...]]:
        seen = [tuple(node.peers)]
        for _ in range(2):
            await asyncio.sleep(1.5)
            seen.append(tuple(node.peers))
        return seen

    ends = run(star(3), looks, lambda node: ends_at(node, 1.0), lambda node: ends_at(node, 2.0))
    assert ends[0] == [(1, 2), (2,), ()]
