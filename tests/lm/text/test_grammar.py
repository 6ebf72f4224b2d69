"""Grammars of JSON: which tokens they allow, and which schemas are refused."""

from __future__ import annotations

import json
import random
import sys
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcluster.errors import UsageError
from simcluster.lm.text import grammar as grammars
from simcluster.lm.text.grammar import MOST_SCHEMA, GrammarFailed, GrammarTokens
from simcluster.lm.text.tokens import Tokens

END, MARK, VOCABULARY = 256, 257, 262
WORDS = (b"tru", b'{"', b'": ')


class Bytes(Tokens):
    """A token per byte, an end, a mark, and some words; the model has one more row of logits."""

    def __init__(self) -> None:
        spelt = [*(bytes([one]) for one in range(256)), b"<end>", b"<mark>", *WORDS]
        super().__init__({"<mark>": MARK, "<end>": END}, spelt)

    def encode(self, text: str) -> list[int]:
        return list(text.encode())


TOKENS = GrammarTokens(Bytes(), {END}, VOCABULARY)
SCHEMAS: list[dict[str, Any]] = [
    {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}, "b": {"enum": ["x", "é"]}},
     "required": ["a", "b"], "additionalProperties": False},
    {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3},
    {"anyOf": [{"type": "string", "maxLength": 4}, {"type": "null"}]},
    {"$defs": {"leaf": {"const": [1, {"x": None}]}}, "$ref": "#/$defs/leaf"},
]  # fmt: skip


@given(st.sampled_from(SCHEMAS), st.integers(0, 10**6))
def test_whatever_is_chosen_among_the_allowed_tokens_follows_the_schema(schema: dict[str, Any], seed: int) -> None:
    constraint, chance, answer = TOKENS.constraint(TOKENS.json(schema)), random.Random(seed), list[int]()
    while not answer or answer[-1] != END:
        allowed = constraint.allowed(answer)
        assert len(allowed) == VOCABULARY
        assert not allowed[MARK]
        answer.append(chance.choice(allowed.nonzero()[0].tolist()))
    text = TOKENS._tokenizer.decode_bytes(answer[:-1]).decode()
    jsonschema.validate(json.loads(text), schema)
    assert "\n" not in text


@given(st.integers(0, 10**6), st.data())
def test_what_is_allowed_depends_on_the_answer_alone(seed: int, data: Any) -> None:
    """A wrong guess is taken back, and after a loss another node gets all tokens at once."""
    whole = list(b'{"a": 41, "b": "x"}')
    used = TOKENS.constraint(TOKENS.json(SCHEMAS[0]))
    for _ in range(4):
        answer = whole[: data.draw(st.integers(0, len(whole)))]
        fresh = TOKENS.constraint(TOKENS.json(SCHEMAS[0]))
        assert (used.allowed(answer) == fresh.allowed(answer)).all()


@given(st.integers(0, 10**6))
def test_an_answer_is_json_or_a_text_that_does_not_begin_like_it(seed: int) -> None:
    constraint = TOKENS.constraint(TOKENS.json(SCHEMAS[0], or_text=True))
    begins = constraint.allowed([]).nonzero()[0].tolist()
    assert {ord("{"), ord("a"), ord("\n"), WORDS.index(b'{"') + 258} <= {*begins}
    assert END not in begins
    chance = random.Random(seed)
    answer = [chance.choice([ord("{"), *begins])]
    while answer[-1] != END and len(answer) < 40:
        answer.append(chance.choice(constraint.allowed(answer).nonzero()[0].tolist()))
    octets = TOKENS._tokenizer.decode_bytes(answer[:-1])
    if octets.startswith(b"{"):
        jsonschema.validate(json.loads(octets), SCHEMAS[0])
    else:
        assert MARK not in answer


def test_an_answer_outside_its_grammar_fails_and_does_not_end_well() -> None:
    with pytest.raises(GrammarFailed):
        TOKENS.constraint(TOKENS.json(SCHEMAS[0])).allowed(list(b"{]"))


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "strange"}, "Invalid type: strange"),
        ({"$ref": "http://127.0.0.1/x"}, "does not fetch"),
        ({"type": "string", "pattern": "(" * 300}, "regex"),
        ({"not": {}}, "not"),
        ({"enum": ["x" * MOST_SCHEMA]}, f"expected at most {MOST_SCHEMA:,}"),
    ],
)
def test_a_schema_that_cannot_be_followed_is_refused(schema: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        TOKENS.json(schema)


def test_a_schema_deeper_than_the_interpreter_is_refused() -> None:
    schema: dict[str, Any] = {}
    for _ in range(sys.getrecursionlimit()):
        schema = {"type": "array", "items": schema}
    with pytest.raises(UsageError, match="recursion"):
        TOKENS.json(schema)


def test_a_model_without_an_end_and_a_machine_without_the_library_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(UsageError, match="a token that ends an answer"):
        GrammarTokens(Bytes(), (), VOCABULARY)
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(UsageError, match=r"no llguidance, expected it to be installed: pip install .*\[lm\]"):
        grammars.GrammarTokens(Bytes(), {END}, VOCABULARY)
