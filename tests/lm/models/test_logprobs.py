"""Log-probabilities of tokens, against sums by hand."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from simcluster.lm.engine.logprobs import LEAST, VOID, logprobs_of, rows_of
from tests.lm.engine.test_sampling import LOGITS


@given(LOGITS, st.integers(0, 25), st.data())
def test_a_token_and_the_likeliest_have_the_logarithms_of_their_softmax_and_equals_rank_by_id(logits, count, data):
    token = data.draw(st.integers(0, len(logits) - 1))
    total = sum(map(math.exp, logits))
    ids, values = logprobs_of(torch.tensor(logits), token, count)
    likeliest = sorted(range(len(logits)), key=lambda one: (-logits[one], one))[:count]
    assert ids == [token, *likeliest]
    assert values == pytest.approx([math.log(math.exp(logits[one]) / total) for one in ids], abs=1e-9)


def test_an_impossible_token_has_a_finite_number():
    ids, values = logprobs_of(torch.tensor([0.0, -math.inf, -1e30]), 1, 3)
    assert ids == [1, 0, 2, 1]
    assert values == [LEAST, 0.0, LEAST, LEAST]


def test_a_token_that_asks_for_none_has_a_void_row_next_to_those_that_ask():
    logits = torch.log(torch.tensor([[0.5, 0.25, 0.25], [0.5, 0.25, 0.25], [0.1, 0.1, 0.8]]))
    ids, values = rows_of(logits, [1, 0, 0], [2, -1, 0])
    assert ids.tolist() == [[1, 0, 1], [VOID] * 3, [0, VOID, VOID]]
    expected = [0.25, 0.5, 0.25, 1.0, 1.0, 1.0, 0.1, 1.0, 1.0]
    assert values.exp().flatten().tolist() == pytest.approx(expected, abs=1e-6)
