"""Answers by a grammar: the same in every placement, with guesses, and after a loss."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import jsonschema
import pytest

import simcluster
from simcluster.lm.engine.limits import EngineLimits
from simcluster.lm.models.open import open_model
from simcluster.lm.plan.times import Lengths
from simcluster.lm.request import Request, Sampling, SamplingRules
from simcluster.lm.serving import parts
from simcluster.lm.serving.language import FileLanguage
from simcluster.lm.serving.replacement import recovery_of
from simcluster.lm.serving.run import ServingResult, answer_all
from simcluster.lm.serving.setup import PlacementLayout, Setup
from simcluster.lm.text.grammar import GrammarFailed
from simcluster.topology import Topology
from tests.lm.serving.test_equality import tokens_of
from tests.lm.text.vocabularies import byte_level, spaced
from tests.support.levels import sample_of
from tests.support.tiny_models import model_of, write_folder

SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3}, "b": {"enum": ["12", "hehe"]}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
LAYOUTS = {
    "alone": PlacementLayout("alone", (1,), (4,)),
    "pipeline": PlacementLayout("pipeline", (2, 0, 1), (1, 2, 1)),
    "tensor": PlacementLayout("tensor", (0, 1), (4, 4)),
    "replicas": PlacementLayout("replicas", (0, 1), (4, 4)),
    "one prefills": PlacementLayout("replicas", (0, 1), (4, 4), prefill=1),
}
CLUSTER = Topology.star(3)


@pytest.fixture(scope="module", params=["bytes", "spaces"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model with a vocabulary of byte pairs, or of pieces with spaces as sentencepiece writes them."""
    folder = write_folder(tmp_path_factory.mktemp("grammar") / "tiny", model_of(vocab_size=700, eos_token_id=3))
    (folder / "tokenizer.json").write_text(byte_level() if request.param == "bytes" else spaced("first"))
    return str(folder)


def requests(model: str) -> list[Request]:
    language = FileLanguage(open_model(model))
    rules = SamplingRules(4, grammar=language.json_grammar(SCHEMA))
    return [
        Request(str(seed), (5, 6, 7, 8 + seed), 60, Sampling(1.0, seed=seed, rules=rules), language.ends)
        for seed in range(3)
    ]


def setup_of(model: str, name: str, given: list[Request], backend: str = "sim", **limits: Any) -> Setup:
    file = open_model(model)
    made = EngineLimits(200, file.context, file.shape.vocabulary, block_tokens=4, chunk_tokens=4, **limits)
    recovery = recovery_of(CLUSTER, Lengths(4, 60), 3) if backend == "sim" else None
    return Setup(
        model, file.shape, "f32", "real", LAYOUTS[name], made, backend != "sim", requests=tuple(given),
        recovery=recovery,
    )  # fmt: skip


def answered(model: str, name: str, given: list[Request], backend: str = "sim", **limits: Any) -> ServingResult:
    return answer_all(setup_of(model, name, given, backend, **limits), CLUSTER, backend=backend)


@pytest.fixture(scope="module")
def expected(model: str) -> dict[str, tuple[int, ...]]:
    found = answered(model, "alone", requests(model))
    language = FileLanguage(open_model(model))
    for one in found.answers.values():
        assert one.reason == "stop"
        jsonschema.validate(json.loads(language.decode(one.tokens[:-1])), SCHEMA)
    assert len({*tokens_of(found).values()}) > 1
    return tokens_of(found)


@pytest.mark.slow
@pytest.mark.parametrize("guesses", [0, 4])
@pytest.mark.parametrize("name", LAYOUTS)
def test_every_placement_gives_the_same_json(name: str, guesses: int, model: str, expected: Any) -> None:
    assert tokens_of(answered(model, name, requests(model), guesses=guesses)) == expected


@pytest.mark.parametrize("name", ["pipeline", "replicas"])
def test_after_a_loss_the_rest_follows_the_same_grammar(name: str, model: str, expected: Any) -> None:
    whole = answered(model, name, requests(model))
    with simcluster.faults() as plan:
        plan.crash(CLUSTER.workers[0], at_s=whole.answers["1"].times_s[5])
        found = answered(model, name, requests(model))
    assert tokens_of(found) == expected
    assert list(found.lost) == [CLUSTER.workers[0]]


@pytest.mark.slow
@pytest.mark.parametrize("name", sample_of(["one prefills", "pipeline", "tensor"]))
def test_real_processes_give_the_same_json(name: str, model: str, expected: Any) -> None:
    assert tokens_of(answered(model, name, requests(model), "sockets")) == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pipeline", "one prefills"])
def test_rules_may_be_longer_than_the_header_of_a_message(name: str, model: str) -> None:
    """A header has at most 64 KiB; this grammar takes more."""
    language = FileLanguage(open_model(model))
    grammar = language.json_grammar({"enum": [f"{number} {'x' * 600}" for number in range(100)]})
    assert len(grammar) > 60_000
    bias = tuple((token, 0.5) for token in range(600))
    given = [Request(str(n), (5, n), 4, Sampling(rules=SamplingRules(2, bias=bias, grammar=grammar))) for n in (1, 2)]
    found = answered(model, name, given, "sockets")
    assert tokens_of(found) == tokens_of(answered(model, "alone", given))


def test_a_grammar_that_fails_ends_its_answer_alone_with_an_error(
    model: str, expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing:
        def allowed(self, answer: list[int]) -> Any:
            raise GrammarFailed("too complex")

    own = parts._constraint
    monkeypatch.setattr(
        parts, "_constraint", lambda path, grammar: Failing() if grammar == "bad" else own(path, grammar)
    )
    first, second, third = requests(model)
    bad = replace(second, sampling=replace(second.sampling, rules=SamplingRules(4, grammar="bad")))
    found = answered(model, "pipeline", [first, bad, third])
    assert found.answers["1"].reason == "error"
    assert found.answers["1"].tokens == ()
    assert {name: found.answers[name].tokens for name in "02"} == {name: expected[name] for name in "02"}
