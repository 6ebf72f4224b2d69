"""Weights as a file without pickle: safetensors, which other programs read too.

This file knows names, tensors and that format. It must not know runs, nodes or folders. The format sorts tensors in a
way of its own; the order of the model, which their hash depends on, is kept in the file's metadata.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import safetensors.torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

ORDER = "names"
"""The key of the metadata that lists the tensors' names in order."""


def to_safetensors(names: Sequence[str], tensors: Sequence[Tensor]) -> bytes | None:
    """The content of a file that holds *tensors*; None if one is of a dtype that the format lacks (complex128)."""
    own = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in zip(names, tensors, strict=True)}
    try:
        return safetensors.torch.save(own, {ORDER: json.dumps(list(names))})
    except KeyError:
        return None


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """Name -> tensor, in the order in which they were given. Raises OSError or ValueError for what is no such file."""
    try:
        with safe_open(path, framework="pt") as file:
            names = json.loads((file.metadata() or {}).get(ORDER, "null")) or file.keys()
            return {name: file.get_tensor(name) for name in names}
    except SafetensorError as error:
        raise ValueError(str(error)) from None
