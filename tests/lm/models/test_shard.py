"""Shards of a decoder against the whole one."""

from __future__ import annotations

import pytest
import torch

from simcluster.lm.models.decoder import DecoderShare, SequencePart
from simcluster.lm.models.shard import DecoderShard
from tests.lm.models import tiny
from tests.lm.models.test_decoder import TOKENS


def through(shards, parts):
    """Return the logits of the rows of *parts* (the same tokens for every shard), with sums over the shards."""
    passes = [one.begin(own) for one, own in zip(shards, parts, strict=True)]
    stream = shards[0].embed(passes[0])
    for layer in range(shards[0].architecture.layers):
        stream = stream + sum(one.attention(layer, now, stream) for one, now in zip(shards, passes, strict=True))
        stream = stream + sum(one.feed_forward(layer, now, stream) for one, now in zip(shards, passes, strict=True))
    for now in passes:
        now.end()
    return torch.cat([one.logits(stream) for one in shards], 1)


@pytest.mark.parametrize("name", tiny.ALL)
@pytest.mark.parametrize("precision", ["f32", "int8"])
def test_sums_over_shards_give_the_logits_of_the_whole(name, precision):
    a = tiny.ALL[name]
    whole = DecoderShare(a, tiny.reader(a), 0, a.layers)
    shards = [DecoderShard(a, tiny.reader(a), place, 2, precision) for place in range(2)]
    caches = [[one.cache(16), one.cache(16)] for one in shards]
    expected = [whole.cache(16), whole.cache(16)]
    for first, second in ((TOKENS, TOKENS[:3]), (TOKENS[:1], TOKENS[4:5])):
        inputs = [torch.tensor(first), torch.tensor(second)]
        parts = [list(map(SequencePart, own, inputs)) for own in caches]
        found = through(shards, parts)
        wanted = torch.cat(whole.forward(list(map(SequencePart, expected, inputs))))
        # int8 has a scale per row, and merge and down have other rows in each shard.
        torch.testing.assert_close(found, wanted, atol=1e-4 if precision == "f32" else 0.5, rtol=1e-4)


def test_heads_that_cannot_be_divided_are_refused():
    with pytest.raises(ValueError, match="found 3, expected a divisor of 2 heads"):
        DecoderShard(tiny.LLAMA, tiny.reader(tiny.LLAMA), 0, 3, "f32")
