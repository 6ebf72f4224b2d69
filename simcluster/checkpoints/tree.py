"""Encode nested values as plain JSON with separate tensors, and decode them.

Pickle is not used, since loading a pickle can run code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from torch import Tensor

from simcluster.errors import CheckpointError
from simcluster.workloads.saved import ShardedTensor

TENSOR = "tensor"
SHARDED = "sharded"
LIST = "list"
DICT = "dict"


def encode(value: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    """Return *value* as JSON values, and put copies of its tensors into *tensors*.

    The names of the tensors start with *path*. An object with a method `checkpoint_state` is
    encoded as what that method returns. Raise CheckpointError for a value of an unsupported type,
    or for a key that is neither a string nor an integer.
    """
    if isinstance(value, ShardedTensor):
        return {SHARDED: _put(value.tensor, path, tensors)}
    if isinstance(value, Tensor):
        return {TENSOR: _put(value, path, tensors)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (list, tuple)):
        return {LIST: [encode(part, f"{path}/{number}", tensors) for number, part in enumerate(value)]}
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, (str, int)) or isinstance(key, bool):
                raise CheckpointError(path, f"the key {key!r}", "string or integer keys")
        return {DICT: [[key, encode(part, f"{path}/{key}", tensors)] for key, part in value.items()]}
    if hasattr(value, "checkpoint_state"):
        return encode(value.checkpoint_state(), path, tensors)
    raise CheckpointError(path, type(value).__name__, "a tensor, number, string, None, or a list or dict of them")


def decode(tree: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Return the value that `encode` turned into *tree* and *tensors*; a tuple is decoded as a
    list.
    """
    if not isinstance(tree, dict):
        return tree
    ((kind, content),) = tree.items()
    if kind == LIST:
        return [decode(part, tensors) for part in content]
    if kind == DICT:
        return {key: decode(part, tensors) for key, part in content}
    return tensors[content]


def sharded_in(tree: Any) -> Iterator[str]:
    """Yield the names of the sharded tensors in *tree*."""
    if isinstance(tree, dict):
        ((kind, content),) = tree.items()
        if kind == SHARDED:
            yield content
        elif kind != TENSOR:
            for part in content if kind == LIST else [part for _, part in content]:
                yield from sharded_in(part)


def _put(tensor: Tensor, path: str, tensors: dict[str, Tensor]) -> str:
    # Copy at once: training continues while the checkpoint is written.
    tensors[path] = tensor.detach().to("cpu", copy=True).contiguous()
    return path
