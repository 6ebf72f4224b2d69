"""The tokenizer: learnt by hand, given back what it took, and a GPT that learns by it."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcluster.errors import UsageError
from simcluster.workloads import gpt
from simcluster.workloads.models.bpe import _WORD, _merged, train
from simcluster.workloads.models.text import read_text, read_tokens

TEXT = b"the cat, the hat; that cat and that hat\n" * 3 + b"int main(void) { return 42; }\n"


def test_the_most_frequent_pair_first_and_of_equals_the_smaller() -> None:
    # low x 3, lower x 2: lo 5 and ow 5 (l o and o w), we 2, er 2; l is 108, o 111, w 119: lo first, then lo+w.
    tokenizer = train(b"low\nlow\nlow\nlower\nlower", 258)
    assert tokenizer.merges == ((108, 111), (256, 119))
    assert tokenizer.encode(b"lower").tolist() == [257, 101, 114]


def slowly(text: bytes, vocabulary: int) -> list[tuple[int, int]]:
    """As the first papers say it: count all, merge, and count again."""
    words, merges = [list(word) for word in _WORD.findall(text)], []
    while len(merges) < vocabulary - 256:
        counts = Counter(pair for word in words for pair in pairwise(word))
        if not counts or max(counts.values()) < 2:
            break
        pair = min(counts, key=lambda pair: (-counts[pair], pair))
        words = [_merged(word, pair, 256 + len(merges)) for word in words]
        merges.append(pair)
    return merges


@given(st.text("ab c1.", max_size=60).map(str.encode), st.integers(256, 280))
def test_it_learns_what_counting_everything_again_learns(text: bytes, vocabulary: int) -> None:
    assert list(train(text, vocabulary).merges) == slowly(text, vocabulary)


@given(st.binary(max_size=80))
def test_any_bytes_come_back(text: bytes) -> None:
    tokenizer = train(TEXT, 300)
    assert tokenizer.decode(tokenizer.encode(text).tolist()) == text


def test_what_it_learnt_from_spells_itself_in_fewer_tokens_and_no_token_crosses_a_word() -> None:
    tokenizer = train(TEXT, 400)
    tokens = tokenizer.encode(TEXT).tolist()
    assert len(tokens) < len(TEXT) / 2
    assert 256 + len(tokenizer.merges) <= 400
    spelt = {tokenizer.decode([token]) for token in tokens}
    assert b" that" in spelt
    assert all(b" " not in token[1:] for token in spelt if token.strip())


def test_it_stops_when_no_pair_occurs_twice() -> None:
    assert not train(b"abcdefg", 300).merges


@pytest.mark.slow
def test_the_text_of_the_package_in_512_tokens_is_half_as_long() -> None:
    tokens = read_tokens(None, 512)
    assert int(tokens.max()) == 511
    assert len(tokens) == pytest.approx(len(read_text()) / 2.06, rel=0.01)


@pytest.mark.slow
def test_a_gpt_learns_by_tokens() -> None:
    workload = gpt(tokenizer="bpe", layers=1, width=32, heads=2, context=16, batch_size=8)
    replica = workload.replica(0, 1, 0, 60)
    before = replica.evaluate()["loss"]
    assert before == pytest.approx(6.24, abs=0.1), "ln 512"
    for batch in replica.batches():
        replica.apply(replica.loss_and_gradients(batch)[1])
    assert replica.evaluate()["loss"] < before - 0.5


def test_a_text_too_short_is_told_in_tokens() -> None:
    with pytest.raises(UsageError, match=r"a tenth of the text's [0-9]+ tokens is held out"):
        gpt(tokenizer="bpe", context=100_000)
