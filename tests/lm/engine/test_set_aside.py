"""An engine that ends leaves its scheduler to the next one: no token changes, and what is cached stays."""

from __future__ import annotations

import random
from collections.abc import Sequence
from zlib import crc32

import pytest

from simcluster.lm.engine.batch import IssuedBatch
from simcluster.lm.engine.limits import EngineLimits
from simcluster.lm.engine.request_source import AnswerToken
from simcluster.lm.engine.scheduler import Scheduler
from simcluster.lm.request import Request, rest
from tests.support.driven import next_batch

CHUNK = 4


def after(tokens: Sequence[int]) -> int:
    """Return the token that follows *tokens*: any other ones before it would change it."""
    return crc32(repr(list(tokens)).encode()) % 50


class Cached:
    """A stage that caches tokens in place of keys and values."""

    def __init__(self) -> None:
        self.slots: dict[int, list[int]] = {}

    def forward(self, issued: IssuedBatch) -> list[int]:
        batch, tokens, chosen = issued.batch, list(issued.tokens), []
        for one in batch.opened:
            self.slots[one.slot] = self.slots[one.source][: one.prefix] if one.prefix else []
        for slot in batch.closed:
            self.slots.pop(slot, None)
        for piece in batch.pieces:
            cache = self.slots[piece.slot]
            assert len(cache) >= piece.start
            cache[piece.start :], tokens = tokens[: piece.count], tokens[piece.count :]
            if piece.samples:
                chosen.append(after(cache))
        return chosen


class Desk:
    """Asks for *requests*, and again for what is left of them whenever the engine ends, in batches of *chance*."""

    def __init__(self, requests: list[Request], limits: EngineLimits, chance: random.Random) -> None:
        self.requests, self.chance, self.stage = requests, chance, Cached()
        self.scheduler = Scheduler(limits, keeps_prefixes=True)
        self.answers: dict[str, list[int]] = {one.id: [] for one in requests}
        self.ends, self.interrupts = set[str](), 0

    def go(self, often: float) -> None:
        scheduler = self.scheduler
        for one in self.requests:
            assert scheduler.add(one) == ""
        while not scheduler.is_empty:
            issued = next_batch(scheduler)
            assert issued is not None
            if self.chance.random() < often:
                if self.chance.random() < 0.5:
                    self.stage.forward(issued)  # the device had done it, and its tokens were lost on their way
                self.interrupt()
                continue
            for answer in scheduler.take(self.stage.forward(issued)):
                if isinstance(answer, AnswerToken):
                    self.answers[answer.request].append(answer.token)
                else:
                    self.ends.add(answer.request)

    def interrupt(self) -> None:
        """End the engine. Some of the last tokens of open requests have not come."""
        self.interrupts += 1
        self.scheduler.set_aside()
        assert self.scheduler.is_empty
        for one in self.requests:
            tokens = self.answers[one.id]
            if one.id in self.ends:
                continue
            lag = self.chance.randint(0, min(2, len(tokens)))
            self.answers[one.id] = tokens = tokens[: len(tokens) - lag]
            left = rest(one, tokens)
            assert isinstance(left, Request)
            found = self.scheduler.resume(left)
            if found is None:
                assert self.scheduler.add(left) == ""
            else:
                tokens += found


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("blocks", [9, 1000])
def test_the_next_engine_continues_every_answer_with_its_tokens(seed: int, blocks: int) -> None:
    chance = random.Random(f"aside {seed}")
    requests = [
        Request(str(i), tuple(chance.choices(range(3), k=chance.randint(1, 14))), chance.randint(1, 12))
        for i in range(chance.randint(1, 6))
    ]
    desk = Desk(requests, EngineLimits(blocks, context=40, vocabulary=50, block_tokens=4, chunk_tokens=CHUNK), chance)
    desk.go(0.3)
    for one in requests:
        tokens = list(one.prompt)
        for _ in range(one.max_tokens):
            tokens.append(after(tokens))
        assert desk.answers[one.id] == tokens[len(one.prompt) :]
    scheduler = desk.scheduler
    assert scheduler.blocks.free + sum(map(scheduler.blocks.held, scheduler._room.kept.values())) == blocks
    assert desk.stage.slots.keys() - set(scheduler._closed) <= scheduler._room.kept.keys()
    if (
        blocks == 1000
    ):  # with room for all, only a chunk in flight is computed again; shared beginnings are not computed
        assert scheduler.prefilled <= sum(len(one.prompt) for one in requests) + desk.interrupts * CHUNK


def answered(scheduler: Scheduler, stage: Cached) -> int:
    """Return the token of the next batch, which has one."""
    issued = next_batch(scheduler)
    assert issued is not None
    (found,) = scheduler.take(stage.forward(issued))
    assert isinstance(found, AnswerToken)
    return found.token


@pytest.mark.parametrize("known", [0, 1, 2])
def test_a_lost_token_with_log_probabilities_is_computed_again_from_what_is_cached(known: int) -> None:
    # Of three tokens, the last 3 - known were lost on their way. The prompt's 3 tokens are computed once; its last one
    # is computed again if it has to give the first token.
    scheduler, stage, request = Scheduler(EngineLimits(100, 100, 50)), Cached(), Request("0", (1, 2, 3), 6, logprobs=2)
    scheduler.add(request)
    answers = [answered(scheduler, stage) for _ in range(3)]
    scheduler.set_aside()
    left = rest(request, answers[:known])
    assert isinstance(left, Request)
    assert scheduler.resume(left) == []
    assert [answered(scheduler, stage) for _ in range(3 - known)] == answers[known:]
    assert scheduler.prefilled == (3 if known else 4)
    scheduler.cancel("0")
    assert scheduler.blocks.free == 100


def test_a_decoding_answer_is_continued_without_a_chunk() -> None:
    scheduler, stage, request = Scheduler(EngineLimits(100, 100, 50)), Cached(), Request("0", (1, 2, 3), 6)
    scheduler.add(request)
    answers = [answered(scheduler, stage) for _ in range(3)]
    assert scheduler.prefilled == 3
    next_batch(scheduler)
    scheduler.set_aside()
    assert (scheduler.aside, scheduler.is_empty) == (["0"], True)
    left = rest(request, answers[:1])
    assert isinstance(left, Request)
    assert scheduler.resume(left) == answers[1:]  # which had been lost on their way
    issued = next_batch(scheduler)
    assert issued is not None
    assert issued.tokens == (answers[-1],)
    assert scheduler.prefilled == 3


@pytest.mark.parametrize(
    "other",
    [
        Request("1", (1, 2, 3), 6),
        Request("0", (1, 2, 4), 6),
        Request("0", (1, 2, 3), 7),
        Request("0", (1, 2, 3, 9, 9, 9), 3),  # more tokens than are known here
    ],
)
def test_another_request_is_not_taken_for_the_one_set_aside_and_gets_its_blocks(other: Request) -> None:
    scheduler, stage = Scheduler(EngineLimits(2, 100, 50, block_tokens=8)), Cached()
    scheduler.add(Request("0", (1, 2, 3), 6))
    issued = next_batch(scheduler)
    assert issued is not None
    scheduler.take(stage.forward(issued))
    scheduler.set_aside()
    assert scheduler.resume(other) is None
    assert scheduler.add(other) == ""
    while (issued := next_batch(scheduler)) is not None:
        scheduler.take(stage.forward(issued))
    assert scheduler.is_empty
    assert scheduler.blocks.free + sum(map(scheduler.blocks.held, scheduler._room.kept.values())) == 2
