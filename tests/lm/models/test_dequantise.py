"""Formats of weights: to the bit as the package gguf reads them, and worked by hand."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from simcluster.lm.files.gguf import StoredTensor
from simcluster.lm.models.dequantise import CONVERT


def test_blocks_worked_by_hand():
    # Scale 0.5 (f16 0x3800), least value -1 (0xbc00). The byte 0x1f has the low half 15 and the high half 1.
    half, one_less, halves = bytes([0, 0x38]), bytes([0, 0xBC]), bytes([0x1F]) * 16
    expected = {
        "Q4_0": (half + halves, [0.5 * (15 - 8)] * 16 + [0.5 * (1 - 8)] * 16),
        "Q4_1": (half + one_less + halves, [0.5 * 15 - 1] * 16 + [0.5 * 1 - 1] * 16),
        "Q8_0": (half + bytes([254] * 32), [0.5 * -2] * 32),
        "BF16": (bytes([0xC0, 0x3F]), [1.5]),
        "F16": (half, [0.5]),
        "F32": (bytes([0, 0, 0x80, 0x3F]), [1.0]),
        "F64": (bytes([0, 0, 0, 0, 0, 0, 0xF0, 0x3F]), [1.0]),
    }
    assert expected.keys() == CONVERT.keys()
    for name, (data, numbers) in expected.items():
        assert CONVERT[name](np.frombuffer(data, np.uint8)).tolist() == numbers
        assert StoredTensor((len(numbers),), gguf.GGMLQuantizationType[name].value, 0).nbytes == len(data)


@pytest.mark.parametrize("name", sorted(CONVERT.keys() - {"F64"}))  # which the package does not read
def test_any_bytes_are_the_numbers_of_the_package(name):
    kind = gguf.GGMLQuantizationType[name]
    _, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    data = np.random.default_rng(5).integers(0, 256, (64, 8 * block_bytes), np.uint8)
    with np.errstate(all="ignore"):  # random scales are also infinite or no numbers
        expected = gguf.dequantize(data, kind)
        found = CONVERT[name](data.reshape(-1)).reshape(expected.shape)
    assert (np.isnan(found) == np.isnan(expected)).all()
    assert (found.view(np.uint32) == expected.view(np.uint32))[~np.isnan(found)].all()


def test_a_tensor_of_broken_blocks_is_refused():
    with pytest.raises(ValueError, match="33 numbers of Q8_0, in blocks of 32"):
        _ = StoredTensor((2, 33), gguf.GGMLQuantizationType.Q8_0.value, 0).nbytes
