"""A simulation that does not let go of its loop is reported while it runs; a loop over sleep(0) ends in an error."""

from __future__ import annotations

import asyncio

import pytest
from simcluster_backends.sim import run_bodies
from simcluster_backends.sim.cluster import SimCluster
from simcluster_backends.sim.loop import event_loop, stalls

from simcluster.errors import NeverFinished
from simcluster.transport import Transport
from tests.support.clusters import star


def test_a_loop_without_an_await_is_reported_with_its_node_and_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(stalls, "STALL_S", 0.0)
    monkeypatch.setattr(stalls, "PERIOD_S", 0.01)
    cluster = SimCluster(star(2))

    async def body(node: Transport) -> None:
        while node.rank == 1 and not caplog.messages:  # as `while True: pass`, until the report has come
            pass

    with stalls.stalls_reported(cluster.loop):
        cluster.run([body] * 2)
    assert caplog.messages[0].startswith("rank 1 (n1) is at ")
    assert "test_stalls.py:" in caplog.messages[0]
    assert "(body), for" in caplog.messages[0]


def test_callbacks_of_one_instant_have_a_limit_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_loop, "INSTANT_CALLBACKS_LIMIT", 1000)
    turns = []

    async def spin(node: Transport) -> None:
        while True:
            turns.append(1)
            await asyncio.sleep(0)

    with pytest.raises(NeverFinished, match=r"no time passes: a loop over `asyncio.sleep\(0\)`"):
        run_bodies([spin], star(1))
    # 1000 callbacks, and 1000 more for the node; all but the first few are turns of the loop.
    assert 1900 < len(turns) <= 2000


def test_an_instant_with_progress_may_be_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_loop, "INSTANT_CALLBACKS_LIMIT", 1000)

    async def body(node: Transport) -> int:
        for step in range(5000):
            await asyncio.sleep(0)
            node.record(step=step)
        return 5000

    assert run_bodies([body], star(1)) == [5000]
