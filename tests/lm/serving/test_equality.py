"""A request's tokens depend on the model, the prompt, the sampling and the seed alone."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from simcluster.errors import UsageError
from simcluster.lm.engine.limits import EngineLimits
from simcluster.lm.models.open import open_model
from simcluster.lm.request import Request, Sampling
from simcluster.lm.serving.asked import RequestOptions, setup_of
from simcluster.lm.serving.on_cluster import shape_of_architecture
from simcluster.lm.serving.run import ServingResult, answer_all
from simcluster.lm.serving.setup import PlacementLayout, Setup
from simcluster.topology import load
from tests.lm.models.test_trained import SIZES, folder_of
from tests.support import clusters

LAYOUTS = {
    "alone": PlacementLayout("alone", (1,), (3,)),
    "two stages": PlacementLayout("pipeline", (0, 1), (1, 2)),
    "three stages": PlacementLayout("pipeline", (2, 0, 1), (1, 1, 1)),
    "two shards": PlacementLayout("tensor", (0, 1), (3, 3)),
    "three shards": PlacementLayout("tensor", (0, 1, 2), (3, 3, 3)),
    "replicas": PlacementLayout("replicas", (0, 1, 2), (3, 3, 3)),
    "one prefills": PlacementLayout("replicas", (0, 1, 2), (3, 3, 3), prefill=1),
    "two prefill": PlacementLayout("replicas", (2, 0, 1), (3, 3, 3), prefill=2),
}
WARM = Sampling(temperature=0.8, top_k=40, top_p=0.95, seed=11)
PROMPTS = ([7, 8, 9, 10, 11], [60, 61], [100] * 9)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of a small seeded GPT, as a run leaves it."""
    path: Path = tmp_path_factory.mktemp("gpt")
    folder_of(path, SIZES)
    return str(path)


def requests(sampling: Sampling = WARM) -> list[Request]:
    return [Request(str(i), tuple(prompt), 8 + i, sampling) for i, prompt in enumerate(PROMPTS)]


def answered(
    model: str, layout: PlacementLayout, given: list[Request], backend: str = "sim", **limits: Any
) -> ServingResult:
    architecture = open_model(model).architecture
    settings = {"blocks": 100, "block_tokens": 4, "chunk_tokens": 4, **limits}
    made = EngineLimits(context=architecture.context, vocabulary=architecture.vocabulary, **settings)
    shape = shape_of_architecture(architecture, "f32", "gpt")
    setup = Setup(model, shape, "f32", "real", layout, made, backend != "sim", requests=tuple(given))
    return answer_all(setup, clusters.star(4), backend=backend)


def tokens_of(found: ServingResult) -> dict[str, tuple[int, ...]]:
    return {name: answer.tokens for name, answer in found.answers.items()}


@pytest.fixture(scope="module")
def expected(model: str) -> dict[str, tuple[int, ...]]:
    """The tokens of each request on one node, with no other request there."""
    found: dict[str, tuple[int, ...]] = {}
    for one in requests():
        found |= tokens_of(answered(model, LAYOUTS["alone"], [one]))
    assert len({*found.values()}) == len(found)
    return found


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_placement_gives_the_tokens_of_one_node_without_neighbours(name: str, model: str, expected: Any) -> None:
    assert tokens_of(answered(model, LAYOUTS[name], requests(), batches=3 if name == "three stages" else 1)) == expected


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["sockets", "torch"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_real_processes_give_the_tokens_of_the_simulator(name: str, backend: str, model: str, expected: Any) -> None:
    found = answered(model, LAYOUTS[name], requests(), backend)
    assert tokens_of(found) == expected
    assert all(use.busy_s > 0 and use.peak_memory_bytes > use.weight_bytes > 0 for use in found.nodes)


def test_a_request_that_was_preempted_gets_its_tokens_once_and_the_same(model: str, expected: Any) -> None:
    # Room for 24 tokens; the requests need 13, 11 and 19 of them at their end, in blocks of 4.
    found = answered(model, LAYOUTS["two stages"], requests(), blocks=6)
    assert tokens_of(found) == expected
    assert found.preemptions > 0


@pytest.mark.parametrize("name", ["three stages", "two shards"])
def test_a_prompt_that_begins_like_an_earlier_one_gets_the_same_tokens(name: str, model: str) -> None:
    # 9 tokens in chunks of 4; the second prompt has two of them in common, the third one. Each comes after the others.
    prompts = (tuple(range(9)), (*range(8), 50, 51), (*range(4), 52, 53))
    apart = [Request(str(i), prompt, 5, WARM, arrival_s=10.0 * i) for i, prompt in enumerate(prompts)]
    alone: dict[str, tuple[int, ...]] = {}
    for one in apart:
        alone |= tokens_of(answered(model, LAYOUTS["alone"], [one]))
    found = answered(model, LAYOUTS[name], apart)
    assert tokens_of(found) == alone
    # A whole prompt first, then what is left of the others: each first token comes sooner.
    ttfts_s = [found.answers[str(i)].ttft_s for i in range(3)]
    assert ttfts_s[1] < ttfts_s[0]
    assert ttfts_s[2] < ttfts_s[0]


@pytest.mark.parametrize("sampling", [Sampling(), WARM])
@pytest.mark.parametrize("name", ["alone", "three stages", "two shards", "replicas"])
def test_guesses_save_passes_and_change_no_token(name: str, sampling: Sampling, model: str) -> None:
    prompt = (5, 6, 7, 8, 9, 5, 6, 7, 8, 9)
    request = [Request("0", prompt, 14, sampling)]
    plain, guessed = (answered(model, LAYOUTS[name], request, guesses=count) for count in (0, 4))
    assert tokens_of(guessed) == tokens_of(plain)
    times_s = guessed.answers["0"].times_s
    if sampling.temperature == 0:  # it repeats itself
        assert len({*times_s}) < len(times_s)
        assert times_s[-1] < plain.answers["0"].times_s[-1]


@pytest.mark.parametrize("name", ["three stages", "two shards", "one prefills"])
def test_real_processes_with_guesses_give_the_same_tokens(name: str, model: str) -> None:
    given = requests(Sampling())
    found = answered(model, LAYOUTS[name], given, "sockets", guesses=3)
    assert tokens_of(found) == tokens_of(answered(model, LAYOUTS["alone"], given))
    assert found.proposed >= found.accepted > 0


def test_right_guesses_are_counted_and_come_together(model: str) -> None:
    found = answered(model, LAYOUTS["alone"], [Request("0", (100,) * 9, 14)], guesses=4, chunk_tokens=64)
    times_s = found.answers["0"].times_s
    assert 0 < found.accepted == len(times_s) - len({*times_s})


@pytest.mark.slow
def test_a_run_is_repeated_to_the_last_bit(model: str) -> None:
    for name in ("three stages", "two shards", "replicas"):
        first, second = (answered(model, LAYOUTS[name], requests()) for _ in range(2))
        assert first.record.trace_sha256 == second.record.trace_sha256
        assert first.answers == second.answers


def test_the_seed_and_the_temperature_decide_the_tokens(model: str, expected: Any) -> None:
    greedy = tokens_of(answered(model, LAYOUTS["alone"], requests(Sampling())))
    other = tokens_of(answered(model, LAYOUTS["alone"], requests(Sampling(0.8, 40, 0.95, seed=12))))
    for a, b in itertools.combinations((greedy, other, expected), 2):
        assert a != b


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["sim", "sockets", "torch"])
def test_a_follower_gets_every_token_in_order_and_once(model: str, expected: Any, backend: str) -> None:
    architecture = open_model(model).architecture
    shape = shape_of_architecture(architecture, "f32", "gpt")
    limits = EngineLimits(100, architecture.context, architecture.vocabulary, chunk_tokens=4)
    setup = Setup(
        model, shape, "f32", "real", LAYOUTS["two stages"], limits, backend != "sim", requests=tuple(requests())
    )
    shown: dict[str, list[int]] = {}
    answer_all(
        setup, clusters.star(4), backend=backend, on_token=lambda name, token: shown.setdefault(name, []).append(token)
    )
    assert {name: tuple(tokens) for name, tokens in shown.items()} == expected


@pytest.mark.slow
@pytest.mark.parametrize("placement", ["alone", "pipeline", "tensor"])
def test_smollm2_knows_the_capital_of_france(placement: str) -> None:
    asked = RequestOptions("smollm2", prompt="The capital of France is", max_tokens=2, placement=placement, raw=True)
    try:
        setup, file = setup_of(asked, load("smolcluster"))
    except UsageError as error:
        pytest.skip(str(error))
    assert file is not None
    assert file.tokenizer is not None
    (answer,) = answer_all(setup, load("smolcluster")).answers.values()
    assert file.tokenizer.decode(answer.tokens) == " Paris."
