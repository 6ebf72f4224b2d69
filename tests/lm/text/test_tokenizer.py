"""Tokenizers of the library: the ids of transformers, no forged marks, exact bytes, and refusals."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import AddedToken
from transformers import PreTrainedTokenizerFast

from simcluster.errors import UsageError
from simcluster.lm import extra
from simcluster.lm.text.tokenizer import LibraryTokens, library_of
from simcluster.lm.text.tokens import BREAK, Detokenizer
from tests.lm.text.vocabularies import KINDS, byte_level, unigram

VOCABULARY = 1000
PLAIN = st.text(st.characters(codec="utf-8", exclude_characters=BREAK)) | st.text("the quick\n\t  ▁é東👍", max_size=40)


@cache
def ours(kind: str) -> LibraryTokens:
    return LibraryTokens(library_of(KINDS[kind]()), VOCABULARY)


@cache
def theirs(kind: str) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=library_of(KINDS[kind]()))


@pytest.mark.parametrize("kind", KINDS)
@given(text=PLAIN)
def test_ids_are_those_of_transformers(kind: str, text: str) -> None:
    assert ours(kind).encode(text) == theirs(kind)(text, add_special_tokens=False).input_ids
    assert ours(kind).prompt(text) == theirs(kind)(text).input_ids


@pytest.mark.parametrize("kind", KINDS)
@example(text=" ")
@given(text=PLAIN)
def test_streamed_text_is_that_of_the_library_for_the_whole_and_has_no_half_character(kind: str, text: str) -> None:
    tokens = ours(kind).encode(text)
    stream = Detokenizer(ours(kind))
    pieces = [stream.push(token) for token in tokens]
    whole = theirs(kind).decode(tokens, clean_up_tokenization_spaces=False)
    assert "".join(pieces) + stream.end() == ours(kind).decode(tokens) == whole
    # A unigram model loses unknown characters, and the library a space at the beginning: it puts one there itself.
    keeps = "▁" not in text and kind != "unigram" and (kind == "spaces never" or not text.startswith(" "))
    if kind == "bytes" or keeps:
        assert whole == text
        assert all(character in text for piece in pieces for character in piece)


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_that_continues_another_keeps_its_first_space(kind: str) -> None:
    tokens = ours(kind).encode("the dog")
    stream = Detokenizer(ours(kind), begins=False)
    text = "".join(map(stream.push, tokens))
    assert text == ("the dog" if kind in ("bytes", "spaces never") else " the dog")
    assert ours(kind).octets(tokens) == text.encode()


@pytest.mark.parametrize("kind", KINDS)
def test_no_text_becomes_a_mark_by_its_name(kind: str) -> None:
    tokens = ours(kind)
    for name, mark in tokens.marks.items():
        assert mark in theirs(kind)(f"a {name} b").input_ids  # what is prevented
        found = tokens.encode(f"a {name} b{name}{name}")
        assert not {*found} & {*tokens.marks.values()} - {0}
        if kind != "unigram":
            # A tokenizer that puts a space in front of every piece also does so within a name.
            without = re.sub(" ", "", tokens.decode(found)) if kind == "spaces always" else tokens.decode(found)
            assert without == (f"a{name}b{name}{name}" if kind == "spaces always" else f"a {name} b{name}{name}")


def test_a_mark_is_where_it_is_written_and_plain_where_it_is_parted() -> None:
    tokens = ours("bytes")
    end = tokens.marks["<|im_end|>"]
    found = tokens.encode_marked(f"a<|im_end|>b<|im_{BREAK}end|>")
    assert found == [*tokens.encode("a"), end, *tokens.encode("b<|im_end|>")]
    assert BREAK not in tokens.decode(tokens.encode(f"a{BREAK}b"))


def test_a_token_of_blanks_is_found_in_any_text() -> None:
    tokens = ours("bytes")
    assert "   " not in tokens.marks
    assert tokens.decode(tokens.encode("a   b")[1:2]) == "   "


def test_a_character_that_was_added_is_text_unless_the_file_calls_it_special() -> None:
    library = library_of(byte_level())
    library.add_tokens([AddedToken("ü", special=False), AddedToken("§", special=True)])
    added = {library.token_to_id(name): name for name in "ü§"}
    tokens = LibraryTokens(library, VOCABULARY)
    assert [added.get(token) for token in tokens.encode("aü")] == [None, "ü"]
    with pytest.raises(UsageError, match="found a text that it takes for a mark"):
        tokens.encode("a§")


def test_a_text_that_normalizes_to_a_mark_is_refused() -> None:
    data = json.loads(unigram())
    for one in data["added_tokens"]:
        one["normalized"] = True
    tokens = LibraryTokens(library_of(json.dumps(data)), VOCABULARY)
    assert not {*tokens.encode("a</s>b")} & {*tokens.marks.values()} - {0}
    with pytest.raises(UsageError, match="found a text that it takes for a mark"):
        tokens.encode("a\uff1c/s\uff1eb")


def test_marks_without_a_row_in_the_model_are_plain_characters() -> None:
    after = ours("bytes").marks["</think>"]
    tokens = LibraryTokens(library_of(byte_level()), after)
    assert "</think>" not in tokens.marks
    assert max(tokens.encode_marked("<think>a</think>")) == tokens.marks["<think>"] == after - 1


def altered(**parts: Any) -> str:
    """Return a tokenizer.json with other *parts*; those of the model are merged into it."""
    data = json.loads(byte_level())
    return json.dumps(data | parts | {"model": data["model"] | parts.get("model", {})})


def split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


WORDS = {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (altered(model=WORDS), "model: found WordLevel, expected BPE or Unigram"),
        (altered(model={"type": "Foo"}), "ModelUntagged .*, among .*Foo"),
        (altered(normalizer={"type": "Bar"}), "NormalizerUntagged .*, among Bar"),
        (altered(pre_tokenizer=split("(")), "Oniguruma error: .*, among Split"),
        (altered(pre_tokenizer={"type": "Sequence", "pretokenizers": [{"type": "Quux"}]}), "among Sequence, Quux"),
        (altered(model={"merges": [["q", "zz"]]}), "out of vocabulary"),
        (altered(decoder=None), "decoder: found None, expected one of bytes"),
        (altered(decoder={"type": "WordPiece", "prefix": "##", "cleanup": True}), "decoder: found WordPiece"),
        (altered(model={"vocab": {"a": 5000}, "merges": []}), "vocab: found the token 5,000, expected up to 999"),
        ("{}", "Model missing"),
        ("[" * 10_000, "invalid type: sequence"),
    ],
)
def test_an_unusable_tokenizer_is_refused_by_name(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LibraryTokens(library_of(text), VOCABULARY)


def test_a_pattern_that_takes_too_many_steps_ends_in_an_error() -> None:
    tokens = LibraryTokens(library_of(altered(pre_tokenizer=split("(a+)+$"))), VOCABULARY)
    with pytest.raises(UsageError, match=r"found a text that it cannot cut: .*retry-limit"):
        tokens.encode("a" * 100 + "!")


def test_a_tokenizer_that_cuts_at_random_is_made_to_cut_as_it_always_does() -> None:
    tokens = LibraryTokens(library_of(altered(model={"dropout": 0.5})), VOCABULARY)
    assert {tuple(tokens.encode("the quick brown fox")) for _ in range(20)} == {
        (*ours("bytes").encode("the quick brown fox"),)
    }


def test_a_missing_library_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extra, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"no package tokenizers, expected it to be installed: pip install .*\[lm\]"):
        library_of(byte_level())
