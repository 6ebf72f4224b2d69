"""Tokenizers of GGUF files: the ids of transformers' own reader, of the models' own files, and prompts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, pre_tokenizers
from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS, convert_gguf_tokenizer

from simcluster.lm.files.gguf import read_header
from simcluster.lm.models.open import open_model
from simcluster.lm.text.gguf_tokenizer import PRE_TOKENIZERS, gguf_library
from simcluster.lm.text.tokenizer import LibraryTokens, library_of
from tests.lm.text.test_tokenizer import PLAIN, VOCABULARY
from tests.lm.text.vocabularies import byte_level, spaced

WORDS = st.lists(
    st.sampled_from(
        ["it's", "WE'LL", " naïveté", "東京", "\r\n", "\n\n", "  ", "1234", "٣٤", "½", "x_y", "!?/", "ǅ", "é́", "\t"]
    )
).map("".join)
TEXTS = PLAIN | WORDS


@cache
def facts(name: str) -> dict[str, Any]:
    """Return the metadata that a converter writes for a small tokenizer of bytes, or of spaces."""
    data = json.loads(byte_level() if name == "bytes" else spaced("first"))
    ids = library_of(json.dumps(data)).get_vocab()
    tokens = sorted(ids, key=ids.__getitem__)
    added = {one["content"]: 3 if one["special"] else 4 for one in data["added_tokens"]}
    types = [2 if token == "<unk>" else added.get(token, 6 if token[:3] == "<0x" else 1) for token in tokens]
    found = {"tokens": tokens, "token_type": np.array(types, np.int32), "bos_token_id": ids["<s>"]}
    if name == "bytes":
        found |= {"model": "gpt2", "merges": [" ".join(pair) for pair in data["model"]["merges"]]}
    else:
        found |= {"model": "llama", "scores": -np.arange(len(tokens), dtype=np.float32)}
    return {f"tokenizer.ggml.{key}": value for key, value in found.items()}


def theirs(found: Mapping[str, Any], architecture: str) -> Tokenizer:
    """Return the tokenizer that transformers makes of the metadata."""
    given = {key.removeprefix("tokenizer.ggml."): value for key, value in found.items()}
    given |= {"token_type": given["token_type"].tolist()}
    names = {"model": "tokenizer_type", "pre": "pre_tokenizer_type"}
    return convert_gguf_tokenizer(architecture, {names.get(key, key): value for key, value in given.items()})[0]


def ours(kind: str, architecture: str = "llama", **more: Any) -> LibraryTokens:
    found = facts(kind) | {f"tokenizer.ggml.{key}": value for key, value in more.items()}
    return LibraryTokens(gguf_library(found, architecture), VOCABULARY)


def test_patterns_are_those_of_transformers() -> None:
    known = GGUF_PRE_TOKENIZER_SPLITS.keys() & PRE_TOKENIZERS.keys()
    assert {name: PRE_TOKENIZERS[name] for name in known} == {
        name: (GGUF_PRE_TOKENIZER_SPLITS[name],) for name in known
    }
    assert len(known) >= 20


@pytest.mark.parametrize("pre", ["gpt-2", "llama-bpe", "qwen2", "qwen35", "gpt-4o", "tekken"])
def test_byte_level_ids_are_those_of_transformers(pre: str) -> None:
    expected, found = theirs(facts("bytes") | {"tokenizer.ggml.pre": pre}, "llama"), ours("bytes", pre=pre)

    @given(text=TEXTS.filter(lambda text: "   " not in text))  # it does not read tokens of blanks
    def check(text: str) -> None:
        assert found.encode(text) == expected.encode(text, add_special_tokens=False).ids

    check()


@pytest.mark.parametrize("architecture", ["llama", "phi3", "gemma2", "gemma3"])
def test_ids_of_a_vocabulary_with_spaces_are_those_of_transformers(architecture: str) -> None:
    expected, found = theirs(facts("spaces"), architecture), ours("spaces", architecture)

    @given(text=TEXTS)
    def check(text: str) -> None:
        assert found.encode(text) == expected.encode(text, add_special_tokens=False).ids
        marked = found.encode_marked(f"<s>{text}</s> x")
        assert marked == expected.encode(f"<s>{text}</s> x", add_special_tokens=False).ids

    check()


@pytest.mark.parametrize("pre", ["gpt-2", "smollm"])
def test_the_rule_of_a_model_is_the_one_of_its_own_file(pre: str) -> None:
    library, found = library_of(byte_level()), ours("bytes", pre=pre)
    digits = [pre_tokenizers.Digits(individual_digits=True)] if pre == "smollm" else []
    library.pre_tokenizer = pre_tokenizers.Sequence([*digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])

    @given(text=TEXTS)
    def check(text: str) -> None:
        assert found.encode(text) == library.encode(text, add_special_tokens=False).ids

    check()


@pytest.mark.parametrize(
    ("more", "begins"),
    [({"pre": "gpt-2"}, False), ({"pre": "gpt-2", "add_bos_token": True}, True), ({"pre": "llama-bpe"}, True),
     ({"pre": "llama-bpe", "add_bos_token": False}, False), ({}, True)],
)  # fmt: skip
def test_a_whole_prompt_begins_with_a_mark_if_the_file_or_its_rule_says_so(more: dict[str, Any], begins: bool) -> None:
    found = ours("bytes" if "pre" in more else "spaces", **more)
    assert found.prompt("the dog") == [found.marks["<s>"]] * begins + found.encode("the dog")


def test_a_file_may_say_that_no_space_comes_first() -> None:
    found = ours("spaces", add_space_prefix=False)
    assert (found.leading, found.decode(found.encode(" the")), found.octets(found.encode("the"))) == (0, " the", b"the")


def test_a_word_that_is_a_token_is_not_merged_by_the_rule_of_llama_3() -> None:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    found = {"model": "gpt2", "tokens": [*alphabet, "ab", "abc", "<s>"], "merges": ["a b"], "bos_token_id": 258,
             "token_type": [1] * 258 + [3]}  # fmt: skip
    found = {f"tokenizer.ggml.{key}": value for key, value in found.items()}
    ids = {}
    for pre in ("gpt-2", "llama-bpe"):
        ids[pre] = LibraryTokens(gguf_library(found | {"tokenizer.ggml.pre": pre}, "llama"), 259).encode("abc")
    assert ids == {"gpt-2": [256, alphabet.index("c")], "llama-bpe": [257]}


def test_smollm2_has_the_ids_of_transformers_and_writes_digits_one_by_one() -> None:
    found = open_model("smollm2").tokenizer
    assert found is not None
    with open(open_model("smollm2").path, "rb") as file:
        expected = theirs(read_header(file).facts, "llama")
    for text in (
        "Hello, world!",
        "  def f(x):\n\treturn x",
        "Grüße aus München",
        "東京は日本の首都です。",
        "👍🏽 it's we'll",
    ):
        assert found.encode(text) == expected.encode(text, add_special_tokens=False).ids
        assert found.decode(found.encode(text)) == text
    assert [found.decode([token]) for token in found.encode("in 1234")] == ["in", " ", "1", "2", "3", "4"]
