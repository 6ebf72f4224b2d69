"""Shares of decoders against a slow reference."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from simcluster.lm.models import matrix, packed
from simcluster.lm.models.attention import attended, queries
from simcluster.lm.models.decoder import DecoderShare, SequencePart
from simcluster.lm.models.matrix import Matrix
from simcluster.lm.models.packed import PackedMatrix
from tests.lm.models import by_numpy, tiny

TOKENS = [3, 1, 4, 1, 5, 9, 2, 6, 49, 0, 8]


def through(shares, chunks):
    """Return the logits of *chunks* of one sequence, passed through *shares*."""
    caches, rows = [share.cache(16) for share in shares], []
    for chunk in chunks:
        stream = torch.tensor(chunk)
        for share, cache in zip(shares, caches, strict=True):
            (stream,) = share.forward([SequencePart(cache, stream)])
        rows.append(stream)
    return torch.cat(rows).numpy()


@pytest.mark.parametrize("name", tiny.ALL)
@pytest.mark.parametrize("cuts", [[0, 4], [0, 1, 4], [0, 2, 3, 4], [0, 1, 2, 3, 4]])
@pytest.mark.parametrize("sizes", [[11], [4, 4, 3], [5, 1, 1, 1, 1, 1, 1], [1] * 11])
def test_any_split_and_any_chunks_give_the_logits_of_the_reference(name, cuts, sizes):
    a = tiny.ALL[name]
    shares = [DecoderShare(a, tiny.reader(a), *pair) for pair in itertools.pairwise(cuts)]
    ends = np.cumsum(sizes)
    chunks = [TOKENS[end - size : end] for size, end in zip(sizes, ends, strict=True)]
    expected = by_numpy.logits(a, tiny.tensors(a), TOKENS)
    np.testing.assert_allclose(through(shares, chunks), expected, atol=1e-4, rtol=1e-4)


LONG = [
    replace(a, context=600, layers=2)
    for a in (tiny.LLAMA, tiny.HALVES, replace(tiny.GPT, heads=3, kv_heads=3, head_width=8))
]
LONG_TOKENS = [(7 * i) % 50 for i in range(600)]


def in_parts(share, chunks, neighbours):
    """Return the results of *chunks* of one sequence, each computed among *neighbours* (lengths of other parts)."""
    cache, rows = share.cache(600), []
    for chunk in chunks:
        others = [SequencePart(share.cache(600), torch.arange(n) % 50) for n in neighbours]
        rows.append(
            share.forward([*others[:1], SequencePart(cache, torch.tensor(chunk)), *others[1:]])[len(others[:1])]
        )
    return torch.cat(rows)


@pytest.mark.parametrize("precision", ["f32", "bf16", "int8"])
@pytest.mark.parametrize("a", LONG, ids=["llama", "halves", "gpt"])
@pytest.mark.parametrize("neighbours", [[1], [1] * 7, [7, 20], [300, 1, 2]])
def test_neighbours_in_the_batch_change_no_bit(a, precision, neighbours):
    share = DecoderShare(a, tiny.reader(a), 0, 2, precision)
    chunks = [LONG_TOKENS[:11], LONG_TOKENS[11:12], LONG_TOKENS[12:14]]
    assert torch.equal(in_parts(share, chunks, neighbours), in_parts(share, chunks, []))


def test_neighbours_change_no_bit_on_a_machine_with_other_kernels(monkeypatch):
    # Rows that depend on the number of rows: the next product of the same row is slightly larger in a larger batch.
    monkeypatch.setattr(packed, "_uniform", {})
    for kind, name in ((Matrix, "_run"), (PackedMatrix, "_times")):
        run = getattr(kind, name)
        monkeypatch.setattr(kind, name, lambda self, rows, run=run: run(self, rows) * (1 + len(rows) / 1000))
    a = LONG[0]
    share = DecoderShare(a, tiny.reader(a), 0, 2)
    assert not share.is_uniform
    chunks = [LONG_TOKENS[:11], LONG_TOKENS[11:12]]
    assert torch.equal(in_parts(share, chunks, [1, 30]), in_parts(share, chunks, []))


@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_without_onednn_the_results_are_near_and_neighbours_change_no_bit(monkeypatch, precision):
    a, chunks = LONG[0], [LONG_TOKENS[:11], LONG_TOKENS[11:12]]
    expected = in_parts(DecoderShare(a, tiny.reader(a), 0, 2, precision), chunks, [])
    monkeypatch.setattr(matrix, "can_pack", lambda dtype: False)
    monkeypatch.setattr(packed, "_uniform", {})
    share = DecoderShare(a, tiny.reader(a), 0, 2, precision)
    alone = in_parts(share, chunks, [])
    assert torch.equal(in_parts(share, chunks, [1, 30]), alone)
    torch.testing.assert_close(alone, expected, atol=1e-4 if precision == "f32" else 0.2, rtol=1e-4)


def attention_is_uniform(a):
    """Return whether torch's products of queries with keys are alike on this machine, alone and among 40."""
    generator = torch.Generator().manual_seed(1)
    query, keys, values = (
        torch.randn(size, generator=generator)
        for size in ((600, a.heads, a.head_width), (a.kv_heads, 768, a.head_width), (a.kv_heads, 768, a.head_width))
    )
    group = a.heads // a.kv_heads
    whole = attended(query, keys, values, queries(0, 600, group))
    return all(
        torch.equal(attended(query[i : i + n], keys, values, queries(i, n, group)), whole[i : i + n])
        for i, n in ((0, 1), (3, 2), (255, 1), (256, 1), (250, 40), (383, 3), (599, 1))
    )


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["f32", "bf16", "int8"])
@pytest.mark.parametrize("a", LONG, ids=["llama", "halves", "gpt"])
def test_the_cut_of_a_prompt_into_chunks_changes_no_bit(a, precision):
    share = DecoderShare(a, tiny.reader(a), 0, 2, precision)
    if not (share.is_uniform and attention_is_uniform(a)):
        pytest.skip("the kernels of this machine round a row by its neighbours")
    whole = in_parts(share, [LONG_TOKENS], [])
    for size in (1, 3, 64, 257):
        chunks = [LONG_TOKENS[i : i + size] for i in range(0, 600, size)]
        assert torch.equal(in_parts(share, chunks, []), whole)


def test_the_logits_of_the_last_tokens_alone_are_those_among_all():
    share = DecoderShare(tiny.LLAMA, tiny.reader(tiny.LLAMA), 0, 4)
    whole, last = (
        share.forward([SequencePart(share.cache(16), torch.tensor(TOKENS[:n])) for n in (11, 1, 5)], last=last)
        for last in (None, [2, 1, 0])
    )
    for found, among, rows in zip(last, whole, (2, 1, 0), strict=True):
        assert torch.equal(found, among[len(among) - rows :])
    assert share.forward([]) == []


@pytest.mark.parametrize(("precision", "most"), [("bf16", 0.05), ("int8", 0.05)])
def test_smaller_weights_stay_near_f32_and_take_less_memory(precision, most):
    exact, small = (DecoderShare(tiny.GPT, tiny.reader(tiny.GPT), 0, 4, p) for p in ("f32", precision))
    expected, found = (through([share], [TOKENS]) for share in (exact, small))
    error = np.linalg.norm(found - expected) / np.linalg.norm(expected)
    assert 0 < error < most
    assert small.nbytes < 0.6 * exact.nbytes


def test_a_full_cache_refuses_before_any_cache_changes():
    share = DecoderShare(tiny.GPT, tiny.reader(tiny.GPT), 0, 4)
    roomy, full = share.cache(16), share.cache(3)
    with pytest.raises(ValueError, match="found 4 tokens, expected 1 to the 3"):
        share.forward([SequencePart(roomy, torch.arange(4)), SequencePart(full, torch.arange(4))])
    assert roomy.length == 0


def test_a_tensor_of_another_shape_is_refused_by_name():
    with pytest.raises(ValueError, match=r"up, layer 0: found \(3, 3\), expected the shape \(96, 24\)"):
        DecoderShare(tiny.GPT, lambda n, *at: torch.ones(3, 3) if n == "up" else tiny.reader(tiny.GPT)(n, *at), 0, 1)
