"""Weights in the layout of oneDNN's kernels, and how shares store them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from simcluster.lm.models import decoder, matrix, packed
from simcluster.lm.models.decoder import DecoderShare, SequencePart
from simcluster.lm.models.matrix import Matrix
from simcluster.lm.models.packed import PackedMatrix, can_pack, filled
from simcluster.lm.models.shard import DecoderShard
from simcluster.lm.serving.on_cluster import shape_of_architecture
from tests.lm.models import tiny

needs_kernels = pytest.mark.skipif(not can_pack(torch.float32), reason="torch is built without oneDNN's kernels")
SHAPES = [(64, 64), (70, 24), (130, 576), (1, 7)]
EVEN = [replace(a, feed_forward=64) for a in tiny.ALL.values()]
"""Whose inner numbers need no filling up."""


def numbers(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(3))


def test_inputs_are_filled_up_to_four_numbers_for_each_doubling_and_by_at_most_a_quarter():
    for count in range(1, 3000):
        assert filled(count) % 4 == 0
        assert count <= filled(count) <= max(count + 3, 1.25 * count)
    assert len({filled(count) for count in range(257, 513)}) == 4


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES)
def test_rows_of_packed_weights_are_those_given(shape, dtype):
    if not can_pack(dtype):
        pytest.skip("the processor has no such kernels")
    weights = numbers(*shape).to(dtype)
    table = PackedMatrix(weights, table=True)
    places = torch.tensor([shape[0] - 1, 0, shape[0] // 2, 0])
    assert torch.equal(table.rows(places), weights[places])


@needs_kernels
@pytest.mark.parametrize("count", [1, 4, 5, 33, 100])
def test_products_of_any_number_of_inputs_are_those_of_plain_weights(count):
    weights, inputs = numbers(70, 24), numbers(count, 24)
    found = PackedMatrix(weights).times(inputs)
    torch.testing.assert_close(found, inputs @ weights.T, atol=1e-4, rtol=1e-4)


@needs_kernels
def test_a_layout_that_is_not_understood_leaves_a_plain_copy(monkeypatch):
    weights = numbers(128, 64)
    once = PackedMatrix(weights, table=True)
    monkeypatch.setattr(packed, "_places", lambda shape, dtype: None)
    twice = PackedMatrix(weights, table=True)
    assert (once.nbytes, twice.nbytes) == (weights.nbytes, 2 * weights.nbytes)
    assert torch.equal(twice.rows(torch.tensor([5])), weights[5:6])


@needs_kernels
def test_a_kernel_that_rounds_otherwise_is_not_used(monkeypatch):
    monkeypatch.setattr(packed, "_uniform", {})
    times, used = PackedMatrix._times, []

    def other(self, inputs):
        used.append(len(inputs))
        return times(self, inputs) * (1.5 if len(inputs) == 12 else 1)

    monkeypatch.setattr(PackedMatrix, "_times", other)
    weights, inputs = PackedMatrix(numbers(70, 24)), numbers(12, 24)
    expected = torch.cat([weights.times(part) for part in inputs.split(4)])
    used.clear()
    assert torch.equal(weights.times(inputs), expected)
    assert used[-3:] == [4, 4, 4]


@needs_kernels
def test_a_server_meets_a_few_numbers_of_inputs_whatever_the_lengths_of_its_prompts(monkeypatch):
    times, used = PackedMatrix._times, set()
    monkeypatch.setattr(PackedMatrix, "_times", lambda self, inputs: used.add(len(inputs)) or times(self, inputs))
    weights = PackedMatrix(numbers(70, 24))
    for count in range(1, 513):
        weights.times(numbers(count, 24))
    # 4 and 8, 12, 16, then four for each of the five doublings up to 512.
    assert len(used) == 4 + 5 * 4


@pytest.mark.parametrize("precision", ["f32", "bf16", "int8"])
@pytest.mark.parametrize("a", EVEN, ids=tiny.ALL)
def test_blocks_of_any_size_give_the_same_bits(a, precision, monkeypatch):
    def made():
        share = DecoderShare(a, tiny.reader(a), 0, a.layers, precision)
        return torch.cat(share.forward([SequencePart(share.cache(16), torch.arange(9))]))

    expected = made()
    for block_bytes, piece_bytes in ((64 * 24 * 4, 4 * 24 * 3), (1, 1)):
        monkeypatch.setattr(matrix, "BLOCK_BYTES", block_bytes)
        monkeypatch.setattr(decoder, "PIECE_BYTES", piece_bytes)
        torch.testing.assert_close(made(), expected, atol=1e-5, rtol=1e-5)


def test_weights_are_read_a_piece_at_a_time(monkeypatch):
    a, read = tiny.LLAMA, []
    monkeypatch.setattr(decoder, "PIECE_BYTES", 4 * 24 * 10)

    def reading(name, layer, first, last):
        read.append((name, last - first))
        return tiny.reader(a)(name, layer, first, last)

    DecoderShare(a, reading, 0, 4)
    # 10 rows of 24 numbers, or 6 of 40; of heads, the 8 rows of two whole ones.
    assert max(rows for name, rows in read if name in ("embedding", "output", "up")) == 10
    assert max(rows for name, rows in read if name == "down") == 6
    assert max(rows for name, rows in read if name in ("query", "key")) == 8


@needs_kernels
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("a", EVEN, ids=tiny.ALL)
def test_the_plan_predicts_what_is_held_to_the_byte(a, count):
    if a.rope_base is None:
        a = replace(a, heads=4, kv_heads=4)
    shape = shape_of_architecture(a, "f32", "tiny")
    # Learned positions are GPT-2's; the plan counts the models of today, which rotate.
    more = 0 if a.rope_base is not None else 4 * a.context * a.width
    if count == 1:
        for first, last in ((0, 4), (0, 1), (1, 3), (3, 4)):
            expected = (last - first) * shape.layer_bytes + shape.ends_bytes(first == 0, last == 4)
            share = DecoderShare(a, tiny.reader(a), first, last)
            assert share.nbytes == expected + more * (first == 0)
    else:
        for place in range(count):
            assert DecoderShard(a, tiny.reader(a), place, count, "f32").nbytes == shape.shard_bytes(1 / count) + more


def test_a_shape_is_not_allocated_before_its_first_rows_are_read():
    def pieces():
        raise ValueError("cut short")
        yield

    with pytest.raises(ValueError, match="cut short"):
        Matrix(pieces(), (2**40, 2**20))
