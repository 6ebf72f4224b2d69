"""What a message carries and how many bytes it takes."""

from __future__ import annotations

import enum

import msgspec
import numpy as np
import pytest
import torch

from simcluster.payload import (
    DTYPES,
    PREAMBLE_BYTES,
    Message,
    MessageHeader,
    Payload,
    as_payload,
    count_once,
    encode_header,
    freeze,
    pack,
    sizes_of,
)
from simcluster.unknown_number import UNKNOWN


def test_short_forms_become_payloads() -> None:
    tensor = torch.ones(2)
    assert as_payload(None) == Payload()
    assert as_payload(3).values == {"value": 3}
    assert as_payload({"a": "b"}).values == {"a": "b"}
    assert as_payload(tensor).tensors == (tensor,)
    assert as_payload([tensor, tensor]).tensors == (tensor, tensor)
    with pytest.raises(TypeError, match="not object"):
        as_payload(object())  # type: ignore[arg-type]


def test_the_body_is_exactly_the_tensors_bytes() -> None:
    # 6 float32 (24 B), 5 bool (5 B), 3 bfloat16 (6 B), one float64 scalar (8 B), nothing (0 B): 43 B
    content = pack(
        torch.zeros(2, 3),
        torch.zeros(5, dtype=torch.bool),
        torch.zeros(3, dtype=torch.bfloat16),
        torch.tensor(1.0, dtype=torch.float64),
        torch.zeros(0, 7),
    )
    header, body = sizes_of("t", content)
    assert body == 24 + 5 + 6 + 8
    assert header == PREAMBLE_BYTES + len(encode_header("t", content))


def test_a_header_says_tag_values_dtypes_and_shapes() -> None:
    content = pack(*(torch.zeros(2, 1).to(dtype) for dtype in DTYPES.values()), step=4, note=None)
    header = msgspec.msgpack.decode(encode_header("gradients", content), type=MessageHeader)
    assert header.tag == "gradients"
    assert header.values == {"step": 4, "note": None}
    assert [(tensor.dtype, tensor.shape) for tensor in header.tensors] == [(name, [2, 1]) for name in DTYPES]


def test_frozen_content_is_out_of_reach() -> None:
    tensor, values = torch.ones(3), {"a": 1}
    frozen = freeze(Payload((tensor.requires_grad_(),), values))
    with torch.no_grad():
        tensor.zero_()
    values["a"] = 2
    assert torch.equal(frozen.tensors[0], torch.ones(3))
    assert not frozen.tensors[0].requires_grad
    assert frozen.values == {"a": 1}


def test_a_transposed_tensor_is_frozen_in_its_own_order() -> None:
    matrix = torch.arange(6).reshape(2, 3)
    assert torch.equal(freeze(pack(matrix.t())).tensors[0], matrix.t())
    assert freeze(pack(matrix.t())).tensors[0].is_contiguous()


@pytest.mark.parametrize(
    ("content", "error", "words"),
    [
        (pack(torch.zeros(1, dtype=torch.complex64)), TypeError, "complex64"),
        (Payload(("text",)), TypeError, "str"),  # type: ignore[arg-type]
        (pack(torch.zeros(2, 2).to_sparse()), TypeError, "sparse"),
        (Payload((), {"a": 2**64}), ValueError, "64 bits"),
        (pack(torch.zeros([1] * 9)), ValueError, "9 dimensions, at most 8"),
        (Payload((), {"a": [1]}), TypeError, "'a' is a list"),  # type: ignore[dict-item]
    ],
)
def test_what_cannot_travel_is_refused_by_name(content: Payload, error: type[Exception], words: str) -> None:
    for either in (encode_header, sizes_of):
        with pytest.raises(error, match=f"message 't'.*{words}"):
            either("t", content)


def test_a_message_helps_to_find_what_it_has() -> None:
    message = Message(2, "t", pack(step=1), 50)
    assert message["step"] == 1
    with pytest.raises(KeyError, match="it has: step"):
        message["stop"]
    with pytest.raises(ValueError, match="0 tensors, not one"):
        _ = message.tensor


def test_numbers_and_strings_of_ones_own_class_are_as_long_as_pythons() -> None:
    class Colour(enum.StrEnum):
        RED = "red"

    class Level(enum.IntEnum):
        HIGH = 300

    # numpy's float64 is a float, and travels in the nine bytes of one; 300 takes three, "red" four.
    for own, plain in ((np.float64(0.1), 0.1), (Colour.RED, "red"), (Level.HIGH, 300), (UNKNOWN, float("nan"))):
        assert sizes_of("t", pack(value=own)) == sizes_of("t", pack(value=plain))
        assert encode_header("t", pack(value=own)) == encode_header("t", pack(value=plain))


@pytest.mark.parametrize("shape", [(), (3,), (2, 0, 4), (1,) * 9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
def test_the_size_of_a_tensor_that_keeps_its_shape_is_the_same(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    counted = count_once(torch.empty(shape, dtype=dtype, device="meta"))
    other = counted.detach()
    if dtype is torch.complex64 or len(shape) > 8:
        with pytest.raises((TypeError, ValueError)):
            sizes_of("t", pack(counted))
    else:
        assert sizes_of("t", pack(counted, other)) == sizes_of("t", pack(other, other))
    other.resize_(7)  # a view without the promise
    assert not hasattr(other, "counted_B")
