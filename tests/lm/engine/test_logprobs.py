"""Log-probabilities of answers on every page: those of a slow reference; none for requests that do not ask."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from simcluster.lm.engine.engine import Engine
from simcluster.lm.engine.generate import generate
from simcluster.lm.engine.generate_tensor import generate_tensor
from simcluster.lm.engine.limits import EngineLimits
from simcluster.lm.engine.sampling import sampled
from simcluster.lm.engine.scheduler import Scheduler
from simcluster.lm.engine.serve_replicas import serve_replicas
from simcluster.lm.engine.sharded import RealShard
from simcluster.lm.engine.stage import RealStage
from simcluster.lm.models.model_file import ModelFile
from simcluster.lm.models.open import open_model
from simcluster.lm.request import NO_LOGPROBS, Request, Sampling
from simcluster.transport import Transport
from tests.lm.engine.counting import Desk
from tests.support import clusters
from tests.support.tiny_models import logits_of, model_of, write_folder

VOCABULARY, CONTEXT = 50, 32
MODEL = model_of("llama", vocab_size=VOCABULARY, max_position_embeddings=CONTEXT)  # 4 layers, 2 KV heads
WARM = Sampling(temperature=0.8, top_k=40, top_p=0.95, seed=11)
REQUESTS = [
    Request("three", (3, 1, 4, 1, 5), 9, WARM, logprobs=3),
    Request("none", (9, 2, 6), 12, WARM),
    Request("own", (5, 3, 5), 10, logprobs=0),
    Request("all", (8, 9, 7, 8, 9), 8, logprobs=60),  # more than there are tokens
]


OPENED = list[ModelFile]()


@pytest.fixture(scope="module", autouse=True)
def _opened(tmp_path_factory: pytest.TempPathFactory) -> None:
    OPENED[:] = [open_model(str(write_folder(tmp_path_factory.mktemp("tiny") / "tiny", MODEL)))]


def stage(first: int, last: int) -> RealStage:
    return RealStage(OPENED[0].share(first, last), OPENED[0].shape, sampled)


def engine_on(node: Transport, desk: Desk, limits: EngineLimits) -> Engine | None:
    return Engine(Scheduler(limits), *desk) if node.rank == 0 else None


async def pipeline(node: Transport, desk: Desk, limits: EngineLimits) -> None:
    await generate(node, stage(2 * node.rank, 2 * node.rank + 2), (0, 1), engine_on(node, desk, limits))


async def tensor(node: Transport, desk: Desk, limits: EngineLimits) -> None:
    weights = OPENED[0].share(0, 4, place=node.rank, count=2)
    shard = RealShard(weights, OPENED[0].shape, 2, sampled)
    await generate_tensor(node, shard, (0, 1), engine_on(node, desk, limits))


async def replicas(node: Transport, desk: Desk, limits: EngineLimits) -> None:
    await serve_replicas(node, stage(0, 4), (0, 1), Scheduler(limits), tuple(desk) if node.rank == 0 else None)


async def moving(node: Transport, desk: Desk, limits: EngineLimits) -> None:
    """Two replicas, of which the first prefills and the second decodes."""
    given = tuple(desk) if node.rank == 0 else None
    await serve_replicas(node, stage(0, 4), (0, 1), Scheduler(limits), given, prefill=1)


def answered(page: Any, **limits: int) -> Desk:
    desk, made = Desk(REQUESTS), EngineLimits(100, CONTEXT, VOCABULARY, block_tokens=4, chunk_tokens=4, **limits)

    async def body(node: Transport) -> None:
        await page(node, desk, made)

    clusters.run(clusters.star(2), body, body)
    return desk


def expected(prompt: tuple[int, ...], tokens: list[int]) -> Any:
    """Return the log-probabilities (tokens, vocabulary) of the reference at the place of each token."""
    rows = logits_of(MODEL, [*prompt, *tokens[:-1]])[len(prompt) - 1 :].numpy()
    return rows - np.log(np.exp(rows).sum(1, keepdims=True))


@pytest.mark.parametrize("guesses", [0, 4])
@pytest.mark.parametrize("page", [pipeline, tensor, replicas, moving])
def test_the_log_probabilities_are_those_of_the_reference_whatever_the_neighbours_ask_for(
    page: Any, guesses: int
) -> None:
    desk = answered(page, guesses=guesses)
    for request in REQUESTS:
        tokens, found = desk.tokens[request.id], desk.logprobs[request.id]
        assert len(tokens) == request.max_tokens
        if request.logprobs == NO_LOGPROBS:
            assert found == [None] * len(tokens)
            continue
        for row, token, one in zip(expected(request.prompt, tokens), tokens, found, strict=True):
            assert one is not None
            assert one.own == pytest.approx(row[token], abs=1e-4)
            assert [value for _, value in one.top] == pytest.approx(sorted(row)[::-1][: request.logprobs], abs=1e-4)
            assert [row[other] for other, _ in one.top] == pytest.approx([value for _, value in one.top], abs=1e-4)


def test_a_request_gets_the_same_tokens_and_log_probabilities_if_it_loses_its_blocks() -> None:
    # The requests need 14, 15, 13 and 13 tokens at their end, in blocks of 4; there is room for 24.
    made = EngineLimits(6, CONTEXT, VOCABULARY, block_tokens=4, chunk_tokens=4)
    desk, scheduler = Desk(REQUESTS), Scheduler(made)

    async def body(node: Transport) -> None:
        await generate(node, stage(0, 4), (0,), Engine(scheduler, *desk))

    clusters.run(clusters.star(1), body)
    whole = answered(pipeline)
    assert scheduler.preemptions > 0
    assert desk.tokens == whole.tokens
    for request in REQUESTS:
        owns = [[one and one.own for one in found.logprobs[request.id]] for found in (desk, whole)]
        assert owns[0] == pytest.approx(owns[1], abs=1e-4)
