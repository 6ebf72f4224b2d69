"""Weights in 8 and 4 bits against the same weights in f32."""

from __future__ import annotations

import gguf
import pytest
import torch
from torch import Tensor

from simcluster.lm.models.quantised import BLOCK_ROWS, Int4Rows, Int8Rows, takes

CPU = torch.device("cpu")


def random(rows: int, columns: int) -> Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(rows + columns))


def held(rows: Int4Rows | Int8Rows, columns: int) -> Tensor:
    """Return the weights that *rows* multiplies with: products with the unit vectors."""
    return rows.times(torch.eye(columns)).T


@pytest.mark.parametrize("pieces", [1, 7, 2000])
@pytest.mark.parametrize("rows", [64, BLOCK_ROWS, 2 * BLOCK_ROWS + 176])
def test_4_bits_round_each_group_to_16_numbers_in_whatever_pieces_it_comes(rows: int, pieces: int) -> None:
    weights = random(rows, 96)
    found = held(Int4Rows(torch.split(weights, -(-rows // pieces)), weights.shape), 96)
    step = (weights.view(rows, 3, 32).amax(2) - weights.view(rows, 3, 32).amin(2)) / 15
    # Half a step, and scales and zero points in bf16, which has 8 bits: 16 numbers of them are off by 1/16 of a step.
    error = (found - weights).view(rows, 3, 32).abs().amax(2)
    assert torch.all(error < 0.65 * step)


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1"])
def test_weights_that_have_4_bits_in_a_file_are_not_rounded_again(kind: str) -> None:
    number = gguf.GGMLQuantizationType[kind]
    stored = gguf.quants.quantize(random(128, 256).numpy(), number)
    weights = torch.from_numpy(gguf.quants.dequantize(stored, number).copy())
    found = held(Int4Rows([weights], weights.shape), 256)
    # What is left is the rounding of scales and zero points to bf16, of 1/256 of them.
    torch.testing.assert_close(found, weights, atol=float(weights.abs().max()) / 100, rtol=0.02)


def test_8_bits_round_each_row_to_255_numbers_and_a_part_shares_its_memory() -> None:
    weights = random(300, 64)
    whole = Int8Rows(torch.split(weights, 37), weights.shape, CPU)
    step = weights.abs().amax(1, keepdim=True) / 127
    assert torch.all((whole.looked_up(torch.arange(300)) - weights).abs() <= 0.5001 * step)
    part = whole.part(100, 150)
    torch.testing.assert_close(held(part, 64), held(whole, 64)[100:150])
    assert part.tensors[0].untyped_storage().data_ptr() == whole.tensors[0].untyped_storage().data_ptr()


def test_rows_of_zeros_stay_zero() -> None:
    zeros = torch.zeros(32, 64)
    for rows in (Int4Rows([zeros], zeros.shape), Int8Rows([zeros], zeros.shape, CPU)):
        assert torch.equal(held(rows, 64), zeros)


def test_other_shapes_and_devices_have_8_bits() -> None:
    assert takes((64, 96), CPU)
    assert not takes((60, 96), CPU)
    assert not takes((64, 90), CPU)
    assert not takes((64, 96), torch.device("cuda"))


@pytest.mark.parametrize("columns", [16, 22, 40, 100, 360])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_8_bits_take_any_number_of_columns(columns: int, count: int) -> None:
    weights = random(48, columns)
    inputs = random(count, columns)
    found = Int8Rows([weights], weights.shape, CPU).times(inputs)
    assert float((found - inputs @ weights.T).norm() / (inputs @ weights.T).norm()) < 0.02
