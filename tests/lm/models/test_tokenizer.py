"""Round trips of the tokenizer, its words and its streaming."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcluster.lm.models.tokenizer import Detokenizer, Tokenizer, _spelling

MERGES = ["h e", "l l", "he ll", "hell o", "Ġ w", "Ã ©", "1 2"]
TOKENS = [*_spelling().values(), *(merge.replace(" ", "") for merge in MERGES), "<|im_end|>"]
MARK = len(TOKENS) - 1


def tokenizer(pre="smollm"):
    return Tokenizer(TOKENS, MERGES, pre, [MARK])


@given(st.text())
def test_any_text_comes_back(text):
    ours = tokenizer()
    assert ours.decode(ours.encode(text)) == text


@given(st.text())
def test_streamed_text_is_the_whole_text_and_has_no_half_character(text):
    ours = tokenizer()
    stream = Detokenizer(ours)
    pieces = [stream.push(token) for token in ours.encode(text)]
    assert "".join(pieces) + stream.end() == text
    assert all(character in text for piece in pieces for character in piece)


@given(st.text(alphabet="helo w12", max_size=30))
def test_merges_are_those_of_the_slow_rule(text):
    ours = tokenizer("gpt-2")
    words = re.findall(r" ?[a-z]+| ?[0-9]+| +(?!\S)| +", text)
    ranks = {tuple(merge.split()): rank for rank, merge in enumerate(MERGES)}
    expected = []
    for word in words:
        parts = [_spelling()[byte] for byte in word.encode()]
        while True:
            found = [(ranks[pair], i) for i, pair in enumerate(itertools.pairwise(parts)) if pair in ranks]
            if not found:
                break
            i = min(found)[1]
            parts[i : i + 2] = [parts[i] + parts[i + 1]]
        expected += parts
    assert [TOKENS[token] for token in ours.encode(text)] == expected


def test_smollm_cuts_numbers_into_digits_and_gpt_2_does_not():
    assert len(tokenizer("smollm").encode("12")) == 2
    assert len(tokenizer("gpt-2").encode("12")) == 1


def test_a_text_with_the_name_of_a_mark_does_not_become_the_mark():
    assert MARK not in tokenizer().encode("<|im_end|>")


@pytest.mark.parametrize(
    ("tokens", "merges", "pre", "message"),
    [
        (TOKENS, MERGES, "bert", "found 'bert', expected one of smollm, gpt-2"),
        (TOKENS[1:], MERGES, "gpt-2", "found none for the byte 33"),
        (TOKENS, ["q z"], "gpt-2", r"merges\[0\]: found 'q z'"),
    ],
)
def test_an_unusable_vocabulary_is_refused(tokens, merges, pre, message):
    with pytest.raises(ValueError, match=message):
        Tokenizer(tokens, merges, pre)
