"""The layout of a message over gloo: its bytes, and frames that no correct peer sends."""

from __future__ import annotations

import pytest
import torch
from simcluster_backends.torch.frame import TorchFrameKind, control_frame, data_frame, read_lead, read_message

from simcluster.errors import (
    ProtocolError,
)
from simcluster.payload import pack, sizes_of


def test_a_message_is_counted_as_everywhere_and_its_tensors_lie_on_boundaries() -> None:
    payload = pack(torch.arange(3.0), torch.ones(5, dtype=torch.int8), torch.ones(2, 0), step=1)
    frame = data_frame("t", payload)
    message = read_message(2, frame.header_bytes, frame.buffer)
    assert frame.size_bytes == message.size_bytes == sum(sizes_of("t", payload))
    assert [bool(torch.equal(a, b)) for a, b in zip(message.tensors, payload.tensors, strict=True)] == [True] * 3
    assert message["step"] == 1
    assert [tensor.data_ptr() % 64 for tensor in message.tensors[:2]] == [frame.buffer.data_ptr() % 64] * 2


def test_what_no_correct_peer_sends_is_refused() -> None:
    lead = control_frame(TorchFrameKind.END, b"why").lead(7)
    assert read_lead(lead, 7) == (TorchFrameKind.END, 3, 3, 0)
    with pytest.raises(ProtocolError, match="number 7"):
        read_lead(lead, 8)
    with pytest.raises(ProtocolError, match="kind 9"):
        read_lead(torch.tensor([9, 0, 0, 0, 0]), 0)
    with pytest.raises(ProtocolError, match="5 bytes of header in 4"):
        read_lead(torch.tensor([1, 5, 4, 0, 0]), 0)
    with pytest.raises(ProtocolError, match="kind 1 with 64 bytes on the device"):
        read_lead(torch.tensor([1, 4, 64, 0, 64]), 0)
    with pytest.raises(ProtocolError, match="kind 4 with -1 bytes on the device"):
        read_lead(torch.tensor([4, 4, 64, 0, -1]), 0)
    frame = data_frame("t", pack(torch.ones(100)))
    with pytest.raises(ProtocolError, match="need more"):
        read_message(0, frame.header_bytes, frame.buffer[:128])
    with pytest.raises(ProtocolError, match="cannot be read"):
        read_message(0, 8, torch.full((64,), 255, dtype=torch.uint8))
