"""Shapes: the weights and bytes of known models, and what their layers read and compute."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simcluster.errors import UsageError
from simcluster.lm.formats import format_of
from simcluster.lm.plan.shape import PRESETS, ModelShape, WeightCounts, with_weights

TINY = ModelShape("tiny", 2, 8, 4, 2, 2, 16, 32, True, 2.0)


def test_the_presets_have_the_weights_of_the_models() -> None:
    # The numbers of parameters on the models' cards: 134.5 million, 6.738, 8.030 and 70.55 billion.
    assert {name: shape.weights for name, shape in PRESETS.items()} == {
        "smollm2": 134_515_008,
        "7b": 6_738_415_616,
        "8b": 8_030_261_248,
        "70b": 70_553_706_496,
    }


def test_a_layer_weighs_caches_and_computes_by_its_formulas() -> None:
    # query and output 8 x 8 each, key and value 8 x 4 each, gate, up and down 8 x 16 each: 64 + 64 + 32 + 32 + 384.
    assert (TINY.parts.attention + TINY.parts.feed) / TINY.layers == 576
    assert TINY.layer_bytes == (576 + 2 * 8) * 2
    # Keys and values of 2 KV heads of size 2, 4 bytes each: 32 bytes per layer and token.
    assert TINY.cache_bytes(2, 10) == 2 * 32 * 10
    # 3 requests, 5 new tokens each after 7: 2 x 576 FLOPs a token; pairs 5 x 7 + 1 + 2 + 3 + 4 + 5 = 50, each
    # 4 x (4 heads of size 2) FLOPs. The weights are read once, 12 cached tokens for every request.
    cost = TINY.layer_cost(3, 5, 7)
    assert cost.flops == 3 * (5 * 2 * 576 + 50 * 4 * 8)
    assert cost.memory_bytes == 1184 + 3 * 12 * 32
    half = TINY.layer_cost(3, 5, 7, share=0.5)
    assert (half.flops, half.memory_bytes) == (cost.flops / 2, cost.memory_bytes / 2)


@pytest.mark.parametrize("tied", [True, False])
def test_weights_are_conserved_however_a_model_is_cut(tied: bool) -> None:
    shape = replace(TINY, tied=tied)
    whole = shape.layers * shape.layer_bytes + shape.ends_bytes(True, True)
    assert whole == shape.weights * shape.weight_bytes
    cut = shape.layers * shape.layer_bytes + shape.ends_bytes(True, False) + shape.ends_bytes(False, True)
    # Tied, both ends hold the table of 32 x 8 weights of 2 bytes.
    assert cut - whole == (32 * 8 * 2 if tied else 0)


def test_a_token_reads_the_experts_it_takes_and_a_batch_those_that_it_is_expected_to_touch() -> None:
    # 2 layers, each with 4 experts of 100 weights and 1 for a token; attention 64, the rest of the MLP 10, norms 16.
    counts = WeightCounts(attention=128, feed=20, others=32, last=8, routed=800, experts=4, active=1)
    shape = replace(TINY, counts=counts, expert_bytes=0.5)
    assert shape.weights == 32 * 8 + 128 + 20 + 32 + 8 + 800
    assert shape.active_weights == shape.weights - 600
    assert shape.whole_bytes == 2 * (shape.weights - 800) + 0.5 * 800
    for tokens, touched in ((1, 1.0), (2, 1.75), (1000, 4.0)):  # 4 (1 - (3/4)^tokens)
        cost = shape.feed_cost([(tokens, 1, 7)], 1.0)
        assert cost.flops == 2 * tokens * (10 + 100)
        assert cost.memory_bytes == pytest.approx(2 * (10 + 8) + 0.5 * 100 * touched)
    assert with_weights(shape, "f32").whole_bytes == 4 * shape.weights


def test_a_latent_cache_has_its_own_numbers() -> None:
    assert replace(TINY, cached=5).cache_bytes(2, 10) == 2 * 5 * 4 * 10


def test_every_command_knows_the_same_formats() -> None:
    assert [format_of(name) for name in ("q8", "float16", "int4", "bf16")] == ["int8", "f16", "q4", "bf16"]
    with pytest.raises(UsageError, match="did you mean 'q4'"):
        format_of("q5")
