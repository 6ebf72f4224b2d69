"""Transfer of a capture to a rank that has none: its values as JSON, its tensors as bytes in pieces."""

from __future__ import annotations

import json
from typing import Any

import torch
from torch import Tensor

from simcluster.checkpoints.tree import decode, encode
from simcluster.collectives.flat import as_bytes, from_bytes
from simcluster.payload import DTYPE_NAMES, DTYPES, pack
from simcluster.regroup.memory import Capture
from simcluster.regroup.messages import Held
from simcluster.transport import Transport

PIECE_BYTES = 1024**2
"""Size of a piece: small enough for any message limit, and for urgent messages to come in between."""

TAG = "regroup/state"


async def hand_over(node: Transport, to: int, capture: Capture) -> None:
    """Send *capture* to rank *to*, except this rank's own state: its generators."""
    tensors: dict[str, Tensor] = {}
    state = None if capture.state is None else {**capture.state, "generators": None}
    tree = encode(state, "state", tensors)
    shapes = [[name, DTYPE_NAMES[tensor.dtype], list(tensor.shape)] for name, tensor in tensors.items()]
    content = as_bytes([tensor.contiguous() for tensor in tensors.values()])
    head = {"name": list(capture.name), "batches": capture.batches, "size": capture.size, "tree": tree}
    await node.send(to, TAG, pack(head=json.dumps({**head, "shapes": shapes, "bytes": len(content)})))
    for start in range(0, len(content), PIECE_BYTES):
        await node.send(to, TAG, content[start : start + PIECE_BYTES])


async def take_over(node: Transport, source: int) -> Capture:
    """Receive what `hand_over` sends from rank *source*."""
    head: dict[str, Any] = json.loads((await node.recv(source, TAG))["head"])
    pieces = [torch.empty(0, dtype=torch.uint8)]
    while sum(map(len, pieces)) < head["bytes"]:
        pieces.append((await node.recv(source, TAG)).tensor)
    like = [torch.empty(shape, dtype=DTYPES[dtype], device="meta") for _, dtype, shape in head["shapes"]]
    names = [name for name, _, _ in head["shapes"]]
    tensors = dict(zip(names, from_bytes(torch.cat(pieces), like), strict=True))
    return Capture(Held(*head["name"]), head["batches"], head["size"], decode(head["tree"], tensors))
