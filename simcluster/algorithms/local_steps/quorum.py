"""Merges of a server that does not wait for all: a quorum of changes, and those that arrive within a grace period."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence

from torch import Tensor

from simcluster.algorithms.facts import Settings
from simcluster.algorithms.parameter_server.asynchronous import PushServer
from simcluster.algorithms.parameter_server.server import Push, mean
from simcluster.algorithms.parameter_server.server_copies import served
from simcluster.collectives import flatten
from simcluster.errors import Problem, UsageError, raise_all
from simcluster.transport import Transport
from simcluster.workloads import Replica


def quorum_world(size: int, settings: Settings) -> None:
    """Raise UsageError if *settings* do not fit the world size or each other."""
    served("quorum")(size, settings)
    merges, grace_s = settings["quorum"] is not None, settings["grace_s"]
    if grace_s is not None and not merges:
        raise UsageError("grace_s", str(grace_s), "a quorum with it")
    expected = "none with a quorum, whose every merge updates the momentum"
    raise_all(
        [Problem(each, str(settings[each]), expected) for each in ("delay", "spread") if merges and settings[each]]
    )


async def merges(
    node: Transport, replica: Replica, server: PushServer, ranks: Sequence[int], quorum: int, grace_s: float | None
) -> AsyncGenerator[list[Push]]:
    """Yield the pushes of each merge, in rank order: those of all present *ranks* that still train,
    or of *quorum* of them and any that arrive within *grace_s* after that. None is no limit.

    A push that misses a merge belongs to the next one. If a rank restarts and pushes again before
    the merge, its earlier push is dropped.
    """
    clock = asyncio.get_running_loop()
    news = server.news()
    held: dict[int, Push] = {}  # by rank
    through = {rank for rank in ranks if replica.done_by(rank) >= replica.steps}
    coming: asyncio.Task[Push | None] | None = None
    deadline_s: float | None = None
    try:
        while True:
            away = through | held.keys()
            missing = {node.rank, *node.peers}.intersection(ranks) - away
            if len(held) >= quorum and deadline_s is None and grace_s is not None:
                deadline_s = clock.time() + grace_s
            if held and (not missing or (deadline_s is not None and clock.time() >= deadline_s)):
                yield [held[rank] for rank in sorted(held)]
                held, deadline_s = {}, None
                continue
            # A task, since a wait that ends early must not cancel what the server does meanwhile.
            coming = coming or asyncio.create_task(_next(news))
            await asyncio.wait([coming], timeout=None if deadline_s is None else deadline_s - clock.time())
            if coming.done():
                try:
                    push = coming.result()
                except StopAsyncIteration:
                    break
                finally:
                    coming = None
                if push is not None:
                    held[push.rank] = push
                    (through.add if push["last"] else through.discard)(push.rank)
        if held:
            yield [held[rank] for rank in sorted(held)]
    finally:
        if coming is not None:
            coming.cancel()


async def _next(news: AsyncIterator[Push | None]) -> Push | None:
    return await anext(news)


def mean_change(replica: Replica, pushes: Sequence[Push]) -> Tensor:
    """Return the mean change of *pushes*, weighted by the samples that they were trained on."""
    if len(pushes) == 1:
        return flatten(pushes[0].tensors)
    samples = [push["trained"] * replica.batch_sizes[push.rank] for push in pushes]
    return mean([[flatten(push.tensors)] for push in pushes], samples)[0]
