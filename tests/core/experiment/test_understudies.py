"""Which real nodes keep their weights, since they may come to stand for the run."""

from __future__ import annotations

import asyncio
from math import inf

from simcluster_backends.sim import run_bodies

from simcluster.experiment.node_part import is_lowest, may_stand
from simcluster.fault_plans.kinds import Crash as CrashFault
from simcluster.testing import Crash
from simcluster.transport import Transport
from tests.support.clusters import star


def test_a_rank_above_those_that_may_be_lost_and_those_that_came_late_may_stand() -> None:
    crash = CrashFault(spells=((0.64, inf),), rank=0)
    assert may_stand(1, [crash])
    assert not may_stand(2, [crash])
    assert may_stand(2, [crash], late=(1,))


def test_of_those_that_are_left_the_lowest_that_was_there_from_the_beginning_may_stand() -> None:
    async def crashes(node: Transport) -> None:
        raise Crash

    async def stays(node: Transport) -> None:
        await asyncio.sleep(2)

    async def asks(node: Transport) -> tuple[bool, bool]:
        await asyncio.sleep(1)
        return await is_lowest(node), await is_lowest(node, late=(1,))

    assert run_bodies([crashes, stays, asks], star(3))[2] == (False, True)
