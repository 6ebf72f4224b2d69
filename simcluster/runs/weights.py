"""Weights as a file without pickle: safetensors, which other programs read too.

The format sorts tensors; the model's order, which the hash of the weights depends on, is in the file's metadata.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

ORDER = "names"
"""The key of the tensors' names, in order, in the metadata."""


def to_safetensors(names: Sequence[str], tensors: Sequence[Tensor]) -> bytes | None:
    """Return a file's content with *tensors*; None if the format lacks the dtype of one (complex128)."""
    own = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in zip(names, tensors, strict=True)}
    try:
        return safetensors.torch.save(own, {ORDER: json.dumps(list(names))})
    except KeyError:
        return None


def read_safetensors(content: bytes) -> dict[str, Tensor]:
    """Return name -> tensor in their original order. Raises ValueError if *content* is no such file."""
    try:
        tensors = safetensors.torch.load(content)
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        names = json.loads(header.get("__metadata__", {}).get(ORDER, "null")) or sorted(tensors)
        return {name: tensors[name] for name in names}
    except (SafetensorError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(str(error)) from None
