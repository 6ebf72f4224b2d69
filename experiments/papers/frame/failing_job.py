"""A job that saves its state now and then, and fails at random: virtual time only, nothing is learnt."""

from __future__ import annotations

import asyncio

from simcluster import Replica, Transport


async def failing_job(
    node: Transport,
    replica: Replica,
    *,
    work_s: float = 100_000.0,
    interval_s: float = 600.0,
    save_s: float = 10.0,
    restart_s: float = 30.0,
    mtbf_s: float = 3600.0,
) -> None:
    """Work for *work_s*, save every *interval_s* for *save_s*, and fail every *mtbf_s* on average.

    After a failure the job restarts for *restart_s*, in which it may fail again, and continues from its last save.
    """
    loop = asyncio.get_running_loop()
    fails_at_s = loop.time() + node.rng.numpy.exponential(mtbf_s)
    done_s, restarts = 0.0, False
    while done_s < work_s:
        try:
            async with asyncio.timeout_at(fails_at_s):
                if restarts:
                    await asyncio.sleep(restart_s)
                    restarts = False
                await asyncio.sleep(interval_s + save_s)
                done_s += interval_s
        except TimeoutError:
            restarts = True
            fails_at_s = loop.time() + node.rng.numpy.exponential(mtbf_s)
    node.record(step=1, loss=0.0)
