"""The limit of a start does not count the time in which a node is at work on its part."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from simcluster_backends.sim.loop.event_loop import SimLoop
from simcluster_backends.sockets.launcher.admission import StartLimit

from tests.support.socket_runs import GUARD_S, Running, job, wait_for


def test_a_node_at_work_on_its_part_is_not_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[StartLimit] = []
    postpone = StartLimit.postpone

    def noted(limit: StartLimit) -> None:
        postpone(limit)
        begun.append(limit)

    monkeypatch.setattr(StartLimit, "postpone", noted)
    request = job("ring", "ab", tmp_path, options={"heartbeat_s": 0.1, "start_s": GUARD_S})
    running = Running(replace(request, program="tests.support.prepares_when_told:ring"))
    wait_for(lambda: len(list(tmp_path.glob("*.at-work"))) == 2)
    limit = wait_for(lambda: begun)[0]._limit
    first_s = limit.when()
    wait_for(lambda: limit.when() > first_s)  # as long as they report it
    (tmp_path / "go").touch()
    assert running.result().error is None


def test_a_start_is_put_off_no_longer_than_a_loop_may_stand_still() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60) as limit:
                start = StartLimit(limit, 60, 300)
                while True:
                    start.postpone()
                    await asyncio.sleep(1)
        assert loop.time() == began_s + 360

    loop = SimLoop()  # type: ignore[abstract]
    loop.run_until_complete(main())
    loop.close()
