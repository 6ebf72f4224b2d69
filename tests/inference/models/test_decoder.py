"""Shares of decoders against a slow reference."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from simcluster.inference.models.decoder import Part, Share
from tests.inference.models import by_numpy, tiny

TOKENS = [3, 1, 4, 1, 5, 9, 2, 6, 49, 0, 8]


def through(shares, chunks):
    """Return the logits of *chunks* of one sequence, passed through *shares*."""
    caches, rows = [share.cache(16) for share in shares], []
    for chunk in chunks:
        stream = torch.tensor(chunk)
        for share, cache in zip(shares, caches, strict=True):
            (stream,) = share.forward([Part(cache, stream)])
        rows.append(stream)
    return torch.cat(rows).numpy()


@pytest.mark.parametrize("name", tiny.ALL)
@pytest.mark.parametrize("cuts", [[0, 4], [0, 1, 4], [0, 2, 3, 4], [0, 1, 2, 3, 4]])
@pytest.mark.parametrize("sizes", [[11], [4, 4, 3], [5, 1, 1, 1, 1, 1, 1], [1] * 11])
def test_any_split_and_any_chunks_give_the_logits_of_the_reference(name, cuts, sizes):
    a = tiny.ALL[name]
    shares = [Share(a, tiny.reader(a), *pair) for pair in itertools.pairwise(cuts)]
    ends = np.cumsum(sizes)
    chunks = [TOKENS[end - size : end] for size, end in zip(sizes, ends, strict=True)]
    expected = by_numpy.logits(a, tiny.tensors(a), TOKENS)
    np.testing.assert_allclose(through(shares, chunks), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("precision", ["f32", "bf16", "int8"])
def test_neighbours_in_the_batch_change_no_bit(precision):
    share = Share(tiny.LLAMA, tiny.reader(tiny.LLAMA), 0, 4, precision)
    alone = share.forward([Part(share.cache(16), torch.tensor(TOKENS))])[0]
    others = [Part(share.cache(20), torch.arange(n)) for n in (1, 7, 20)]
    among = share.forward([*others[:2], Part(share.cache(16), torch.tensor(TOKENS)), others[2]])[2]
    assert torch.equal(alone, among)


@pytest.mark.parametrize(("precision", "most"), [("bf16", 0.05), ("int8", 0.05)])
def test_smaller_weights_stay_near_f32_and_take_less_memory(precision, most):
    exact, small = (Share(tiny.GPT, tiny.reader(tiny.GPT), 0, 4, p) for p in ("f32", precision))
    expected, found = (through([share], [TOKENS]) for share in (exact, small))
    error = np.linalg.norm(found - expected) / np.linalg.norm(expected)
    assert 0 < error < most
    assert small.nbytes < 0.6 * exact.nbytes


def test_a_full_cache_refuses_before_any_cache_changes():
    share = Share(tiny.GPT, tiny.reader(tiny.GPT), 0, 4)
    roomy, full = share.cache(16), share.cache(3)
    with pytest.raises(ValueError, match="found 4 tokens, expected 1 to the 3"):
        share.forward([Part(roomy, torch.arange(4)), Part(full, torch.arange(4))])
    assert roomy.length == 0


def test_a_tensor_of_another_shape_is_refused_by_name():
    with pytest.raises(ValueError, match=r"up, layer 0: found \(3, 3\), expected the shape \(96, 24\)"):
        Share(tiny.GPT, lambda n, i: torch.ones(3, 3) if n == "up" else tiny.tensors(tiny.GPT)[n, i], 0, 1)
