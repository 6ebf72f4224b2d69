"""A request's tokens depend on the model, the prompt, the sampling and the seed alone."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from simcluster.errors import UsageError
from simcluster.lm.engine.limits import EngineLimits
from simcluster.lm.models.open import open_model
from simcluster.lm.request import Request, Sampling, SamplingRules
from simcluster.lm.serving.request_options import RequestOptions, setup_of
from simcluster.lm.serving.run import ServingResult, answer_all
from simcluster.lm.serving.setup import PlacementLayout, Setup
from simcluster.topology import load
from tests.lm.models.test_trained import SIZES, folder_of
from tests.support import clusters
from tests.support.levels import sample_of

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


def ruled(given: list[Request]) -> list[Request]:
    """Return *given* with penalties that depend on the tokens before, and with a minimum of tokens."""
    return [
        replace(
            one,
            ends=frozenset(range(0, 256, 2)),
            sampling=replace(
                one.sampling,
                rules=SamplingRules(
                    len(one.prompt), 1.5, 0.5, 0.25, bias=((3, 1.0),), ends=tuple(range(0, 256, 2)),
                    until=len(one.prompt) + 6, min_p=0.01,
                ),
            ),
        )
        for one in given
    ]  # fmt: skip


def answered(
    model: str, layout: PlacementLayout, given: list[Request], backend: str = "sim", **limits: Any
) -> ServingResult:
    shape = open_model(model).shape
    settings = {"blocks": 100, "block_tokens": 4, "chunk_tokens": 4, **limits}
    made = EngineLimits(context=shape.context, vocabulary=shape.vocabulary, **settings)
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


@pytest.fixture(scope="module")
def expected_by_rules(model: str, expected: Any) -> dict[str, tuple[int, ...]]:
    """The tokens of each request with sampling rules on one node, with no other request there."""
    found: dict[str, tuple[int, ...]] = {}
    for one in ruled(requests()):
        found |= tokens_of(answered(model, LAYOUTS["alone"], [one]))
    assert all(found[name] != expected[name][: len(found[name])] for name in found)
    # Even tokens end an answer, but none of the first six.
    assert all(len(tokens) > 6 and not {*tokens[:6]} & {*range(0, 256, 2)} for tokens in found.values())
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYOUTS)
def test_sampling_rules_give_the_same_tokens_in_every_placement(name: str, model: str, expected_by_rules: Any) -> None:
    for limits in ({}, {"guesses": 4}, {"batches": 3} if name == "three stages" else {"blocks": 6}):
        assert tokens_of(answered(model, LAYOUTS[name], ruled(requests()), **limits)) == expected_by_rules


@pytest.mark.slow
@pytest.mark.parametrize("name", ["three stages", "two shards", "one prefills"])
def test_real_processes_give_the_same_tokens_by_sampling_rules(name: str, model: str, expected_by_rules: Any) -> None:
    plain = requests(Sampling())[1:2]
    found = answered(model, LAYOUTS[name], [*ruled(requests()), replace(plain[0], id="plain")], "sockets", guesses=2)
    alone = tokens_of(answered(model, LAYOUTS["alone"], plain))
    assert tokens_of(found) == expected_by_rules | {"plain": alone["1"]}


def test_a_wrong_guess_leaves_no_penalty(model: str) -> None:
    """The greedy answer repeats itself, so guesses are right until a penalty makes them wrong."""
    prompt = (5, 6, 7, 8, 9, 5, 6, 7, 8, 9)
    sampling = Sampling(rules=SamplingRules(len(prompt), frequency_penalty=0.1, repetition_penalty=1.02))
    request = [Request("0", prompt, 14, sampling)]
    plain, guessed = (answered(model, LAYOUTS["two stages"], request, guesses=count) for count in (0, 4))
    assert tokens_of(guessed) == tokens_of(plain)
    assert 0 <= guessed.accepted < guessed.proposed


@pytest.mark.slow
@pytest.mark.parametrize(("name", "backend"), sample_of(itertools.product(LAYOUTS, ("sockets", "torch"))))
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


@pytest.mark.slow
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


def test_the_seed_and_the_temperature_decide_the_tokens(model: str, expected: Any) -> None:
    greedy = tokens_of(answered(model, LAYOUTS["alone"], requests(Sampling())))
    other = tokens_of(answered(model, LAYOUTS["alone"], requests(Sampling(0.8, 40, 0.95, seed=12))))
    for a, b in itertools.combinations((greedy, other, expected), 2):
        assert a != b


@pytest.mark.slow
@pytest.mark.parametrize("backend", sample_of(["sockets", "sim", "torch"]))
def test_a_follower_gets_every_token_in_order_and_once(model: str, expected: Any, backend: str) -> None:
    shape = open_model(model).shape
    limits = EngineLimits(100, shape.context, shape.vocabulary, chunk_tokens=4)
    setup = Setup(
        model, shape, "f32", "real", LAYOUTS["two stages"], limits, backend != "sim", requests=tuple(requests())
    )
    shown: dict[str, list[int]] = {}
    answer_all(
        setup, clusters.star(4), backend=backend, on_token=lambda name, token: shown.setdefault(name, []).append(token)
    )
    assert {name: tuple(tokens) for name, tokens in shown.items()} == expected


@pytest.mark.slow
@pytest.mark.parametrize("placement", sample_of(["pipeline", "alone", "tensor"]))
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
