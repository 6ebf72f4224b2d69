"""The scheduler is the queue that theory knows: it takes the same path as an independent queue."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from simcluster.lm.engine.batch import IssuedBatch
from simcluster.lm.load.answers import AnsweredRequest
from simcluster.lm.load.arrivals import OfferedRequest, offered
from simcluster.lm.load.lengths import Length, fixed
from simcluster.lm.load.metrics import figures
from simcluster.lm.load.trace import COLUMNS, read_trace
from simcluster.rng import numpy_stream
from tests.support.driven import at_most, driven, requests_of
from tests.support.queues import mean_number, served

RATE, COUNT = 2.0, 2_000


def load(output: Length, count: int = COUNT, seed: int = 1) -> list[OfferedRequest]:
    return offered(RATE, count, fixed(3), output, seed)


def spans(answers: list[AnsweredRequest]) -> list[tuple[float, float]]:
    return [(one.arrival_s, one.end_s) for one in answers]


def queue_ends_s(requests: list[OfferedRequest], services_s: list[float], servers: int = 1) -> list[float]:
    """Return the ends in a queue that knows nothing of the scheduler."""
    return [end_s for _, end_s in served([one.arrival_s for one in requests], services_s, servers)]


@pytest.mark.parametrize(
    "services_s", [[0.35] * COUNT, numpy_stream(2, "service").exponential(0.3, COUNT).tolist()], ids=["D", "M"]
)
def test_one_at_a_time_is_a_queue_with_one_server(services_s: list[float]) -> None:
    requests, each = load(fixed(1)), iter(services_s)
    answers = driven(at_most(1), requests_of(requests), lambda issued: next(each))
    assert [one.end_s for one in answers] == pytest.approx(queue_ends_s(requests, services_s), rel=1e-12)


def test_answers_of_random_length_one_at_a_time_are_one_too() -> None:
    # Lengths are geometric with mean 6; a token takes 0.05 s. Load 0.6.
    requests = load(Length("geometric", (6.0,)))
    answers = driven(at_most(1), requests_of(requests), lambda issued: 0.05)
    expected_s = queue_ends_s(requests, [0.05 * one.output_tokens for one in requests])
    assert [one.end_s for one in answers] == pytest.approx(expected_s, rel=1e-9)


@pytest.mark.parametrize("running", [2, 4])
def test_sequences_that_share_every_batch_for_nothing_are_a_queue_with_many_servers(running: int) -> None:
    # A batch takes 10 ms however many sequences it has, as where reading the weights decides. An answer of geometric
    # length with mean 30 k then takes 0.3 k s: k servers at a load of 0.6. A request waits for a batch to end besides,
    # so that it starts up to a batch later than at a free server, and ends between both queues.
    batch_s = 0.01
    requests = load(Length("geometric", (30.0 * running,)), 600)
    answers = driven(at_most(running), requests_of(requests), lambda issued: batch_s)
    services_s = [batch_s * one.output_tokens for one in requests]
    first = queue_ends_s(requests, services_s, running)
    last = queue_ends_s(requests, [one + batch_s for one in services_s], running)
    assert all(a - 1e-9 <= one.end_s <= b + 1e-9 for a, one, b in zip(first, answers, last, strict=True))


def by_tokens(issued: IssuedBatch) -> float:
    return 0.01 + 0.002 * issued.batch.tokens


@pytest.mark.parametrize("blocks", [12, 10**6])
def test_littles_law_holds_whatever_the_batches(blocks: int) -> None:
    # The number in the system is counted event by event; latencies know nothing of it. Few blocks mean pre-emption.
    requests = [replace(one, prompt_tokens=40) for one in load(Length("uniform", (1, 60)), 500)]
    scheduler = at_most(64, blocks)
    answers = driven(scheduler, requests_of(requests), by_tokens)
    assert (scheduler.preemptions > 0) == (blocks < 100)
    assert figures(answers).mean_in_system == pytest.approx(mean_number(spans(answers)), rel=1e-9)
    assert figures(answers).output_tokens == sum(one.output_tokens for one in requests)


def test_a_replay_of_a_runs_arrivals_gives_the_run(tmp_path: Path) -> None:
    requests = load(Length("uniform", (1, 30)), 300)
    requests = [replace(one, arrival_s=one.arrival_s - requests[0].arrival_s) for one in requests]
    rows = [
        f"{one.arrival_s!r},m,{one.prompt_tokens},{one.output_tokens},{one.prompt_tokens + one.output_tokens},API log"
        for one in requests
    ]
    (tmp_path / "run.csv").write_text("\n".join([",".join(COLUMNS), *rows]))
    again = read_trace(tmp_path / "run.csv").requests
    assert again == requests
    assert driven(at_most(8), requests_of(again), by_tokens) == driven(at_most(8), requests_of(requests), by_tokens)


@pytest.mark.slow
def test_batches_take_more_at_once_and_so_requests_wait_less() -> None:
    requests = requests_of(load(fixed(20), 2_000))
    alone, together = (driven(at_most(n), requests, by_tokens) for n in (1, 16))
    assert np.mean([one.ttft_s for one in together]) < np.mean([one.ttft_s for one in alone]) / 2
