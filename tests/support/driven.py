"""A scheduler driven by a clock of its own: requests arrive, batches take the time that the test says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from simcluster.lm.engine.batch import IssuedBatch
from simcluster.lm.engine.limits import EngineLimits
from simcluster.lm.engine.request_source import AnswerToken
from simcluster.lm.engine.scheduler import Scheduler
from simcluster.lm.load.answers import AnsweredRequest
from simcluster.lm.load.arrivals import OfferedRequest
from simcluster.lm.request import Request

TOKEN = 7
"""The token of every prompt and answer: no scheduler may look at it."""


def requests_of(offered: Iterable[OfferedRequest]) -> list[Request]:
    return [
        Request(str(number), (TOKEN,) * one.prompt_tokens, one.output_tokens, arrival_s=one.arrival_s)
        for number, one in enumerate(offered)
    ]


def at_most(running: int, blocks: int = 10**6) -> Scheduler:
    return Scheduler(EngineLimits(blocks, context=10**5, vocabulary=10, running=running))


def next_batch(scheduler: Scheduler) -> IssuedBatch | None:
    """Return the next batch, None if there is none now."""
    chosen = scheduler.plan()
    return scheduler.issue(chosen) if chosen else None


def driven(
    scheduler: Scheduler, requests: Sequence[Request], time_s: Callable[[IssuedBatch], float]
) -> list[AnsweredRequest]:
    """Return the answers of *requests*, in their order, from a *scheduler* with one batch in flight.

    Fail if the scheduler idles while a request waits or runs, or keeps a block at the end.
    """
    tokens_s: dict[str, list[float]] = {one.id: [] for one in requests}
    arrived, now_s = 0, 0.0
    while arrived < len(requests) or not scheduler.is_empty:
        if scheduler.is_empty:
            now_s = max(now_s, requests[arrived].arrival_s)
        while arrived < len(requests) and requests[arrived].arrival_s <= now_s:
            assert scheduler.add(requests[arrived]) == ""
            arrived += 1
        issued = next_batch(scheduler)
        assert issued is not None, "the scheduler idles although requests wait"
        now_s += time_s(issued)
        for answer in scheduler.take([TOKEN] * sum(piece.samples for piece in issued.batch.pieces)):
            if isinstance(answer, AnswerToken):
                tokens_s[answer.request].append(now_s)
    assert scheduler.blocks.free == scheduler.blocks.total
    return [
        AnsweredRequest(one.arrival_s, tuple(times), times[-1], len(one.prompt), len(times))
        for one, times in zip(requests, tokens_s.values(), strict=True)
    ]
