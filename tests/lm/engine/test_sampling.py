"""Sampling: laws, a slow reference, and counts of draws against probabilities."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from simcluster.lm.engine.sampling import sampled, uniform
from simcluster.lm.request import Sampling, SamplingRules, seed_of_choice

# Sixteenths between -4 and 4: many ties, and exact in f32.
LOGITS = st.lists(st.integers(-64, 64).map(lambda n: n / 16), min_size=1, max_size=20)
PLACES = st.integers(0, 10_000)
SEEDS = st.integers(-(2**63), 2**63)


@given(LOGITS, PLACES)
def test_temperature_0_takes_the_likeliest_token_with_the_lowest_id(logits, place):
    assert sampled(torch.tensor(logits), Sampling(), place) == logits.index(max(logits))


@given(LOGITS, PLACES, SEEDS, st.sampled_from([{"top_k": 1}, {"top_p": 0.0}, {"temperature": 1e-9}]))
def test_every_narrowest_choice_is_greedy_except_among_ties(logits, place, seed, narrow):
    found = sampled(torch.tensor(logits), Sampling(**{"temperature": 1.0, "seed": seed} | narrow), place)
    assert logits[found] == max(logits)
    if "temperature" not in narrow:
        assert found == logits.index(max(logits))


def by_hand(logits, sampling, place):
    """Return the token by the rule: sort by probability, then id; keep; draw in the order of ids."""
    weights = [math.exp((one - max(logits)) / sampling.temperature) for one in logits]
    order = sorted(range(len(logits)), key=lambda i: (-weights[i], i))[: sampling.top_k or None]
    kept, total = [], sum(weights[i] for i in order)
    for i in order:
        kept.append(i)
        if sum(weights[i] for i in kept) >= sampling.top_p * total:
            break
    draw, reached = uniform(sampling.seed, place) * sum(weights[i] for i in kept), 0.0
    for i in sorted(kept):
        reached += weights[i]
        if reached > draw:
            return i
    raise AssertionError("no token")


# Shares that no sums of these weights hit: a tie there would be decided by rounding.
SHARES = st.sampled_from([0.1234567, 0.5123456, 0.9012345, 1.0])


@given(LOGITS, PLACES, SEEDS, st.sampled_from([0.5, 1.0, 2.0]), st.integers(0, 25), SHARES)
def test_a_token_is_that_of_the_rule(logits, place, seed, temperature, top_k, top_p):
    sampling = Sampling(temperature, top_k, top_p, seed)
    assert sampled(torch.tensor(logits), sampling, place) == by_hand(logits, sampling, place)


def test_draws_have_the_probabilities_of_the_softmax():
    weights = [8, 4, 2, 1, 1]
    logits = torch.tensor(weights).log()
    draws = Counter(sampled(logits, Sampling(1.0, seed=3), place) for place in range(4096))
    # 4096 draws among sixteenths: 2048, 1024, 512, 256 and 256 expected. Chi-square with 4 degrees of freedom is below
    # 18.5 in 99.9 % of cases; the seed is fixed.
    assert sum((draws[i] - 256 * w) ** 2 / (256 * w) for i, w in enumerate(weights)) < 18.5
    # At temperature 2, weights are square roots: 2.83, 2, 1.41, 1, 1 of 8.24.
    warm = Counter(sampled(logits, Sampling(2.0, seed=3), place) for place in range(4096))
    expected = [4096 * math.sqrt(w) / sum(map(math.sqrt, weights)) for w in weights]
    assert sum((warm[i] - e) ** 2 / e for i, e in enumerate(expected)) < 18.5


def test_random_numbers_differ_between_places_and_seeds_and_are_the_same_on_every_machine():
    found = {uniform(seed, place) for seed in range(-5, 5) for place in range(100)}
    assert len(found) == 1000
    assert all(0 <= one < 1 for one in found)
    # sha256("0,0") begins with the bytes 73 34 82 14 29 a9 95 61: as a little-endian number, without its last 11 bits.
    assert uniform(0, 0) == (0x6195A92914823473 >> 11) / 2**53


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_logits_without_probabilities_are_refused(bad):
    with pytest.raises(ValueError, match="expected a number"):
        sampled(torch.tensor([0.0, bad]), Sampling(1.0), 0)


def test_a_token_of_probability_0_is_never_drawn():
    logits = torch.tensor([-math.inf, 0.0, -math.inf, 0.0, -math.inf])
    assert {sampled(logits, Sampling(1.0), place) for place in range(200)} == {1, 3}


def with_rules_by_hand(logits, rules, place, before):
    """Return *logits* after the rules, token by token."""
    found = list(logits)
    for token, number in rules.bias:
        found[token] += number
    for token in range(len(found)):
        if place < rules.until and token in rules.ends:
            found[token] = -math.inf
        if token in before:
            found[token] *= rules.repetition_penalty if found[token] <= 0 else 1 / rules.repetition_penalty
        if count := before[rules.begin :].count(token):
            found[token] -= rules.presence_penalty + count * rules.frequency_penalty
    return found


EXACT = st.sampled_from([0.0, 0.5, 1.0, -0.25])


@given(st.data(), LOGITS.filter(lambda found: len(found) > 4), SEEDS, st.sampled_from([0.0, 1.0]))
def test_rules_change_the_logits_and_nothing_else(data, logits, seed, temperature):
    tokens = st.integers(0, len(logits) - 1)
    before = data.draw(st.lists(tokens, max_size=12))
    begin = data.draw(st.integers(0, len(before)))
    rules = SamplingRules(
        begin, data.draw(st.sampled_from([1.0, 0.5, 2.0])), data.draw(EXACT), data.draw(EXACT),
        tuple(data.draw(st.dictionaries(tokens, EXACT, max_size=3)).items()),
        ends=(0, 2), until=data.draw(st.integers(0, 14)),
    )  # fmt: skip
    changed = torch.tensor(with_rules_by_hand(logits, rules, len(before), before), dtype=torch.float64)
    sampling = Sampling(temperature, seed=seed)
    found = sampled(
        torch.tensor(logits), Sampling(temperature, seed=seed, rules=rules), len(before), np.array(before, np.int32)
    )
    assert found == sampled(changed, sampling, len(before))


@given(LOGITS, PLACES, SEEDS, st.sampled_from([0.05, 0.3, 1.0]))
def test_min_p_excludes_tokens_with_less_than_its_share_of_the_likeliest_ones_probability(logits, place, seed, min_p):
    sampling = Sampling(1.0, seed=seed)
    # A weight is e^(logit - best); far below all others, a token is never drawn.
    kept = [one if math.exp(one - max(logits)) >= min_p else -1e9 for one in logits]
    ruled = Sampling(1.0, seed=seed, rules=SamplingRules(0, min_p=min_p))
    assert sampled(torch.tensor(logits), ruled, place) == sampled(torch.tensor(kept), sampling, place)


def test_choices_of_a_request_have_seeds_of_their_own_and_the_first_one_that_of_the_request():
    assert [seed_of_choice(7, 0), seed_of_choice(2**63 - 1, 0)] == [7, 2**63 - 1]
    found = {seed_of_choice(seed, number) for seed in range(20) for number in range(1, 20)}
    assert len(found) == 20 * 19
    assert all(0 <= one < 2**63 for one in found)
