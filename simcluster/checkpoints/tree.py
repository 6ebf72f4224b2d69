"""Nested values as plain JSON with separate tensors, and back. No pickle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from torch import Tensor

from simcluster.errors import CheckpointError
from simcluster.workloads.saved import ShardedTensor

TENSOR, SHARDED, LIST, DICT = "tensor", "sharded", "list", "dict"


def encode(value: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    """Return *value* as JSON; put copies of its tensors into *tensors*, under names that start with *path*.

    A stateful object is asked for its state. Raises CheckpointError for unsupported values.
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
    """Return the value that *tree* stands for; tuples become lists."""
    if not isinstance(tree, dict):
        return tree
    ((kind, content),) = tree.items()
    if kind == LIST:
        return [decode(part, tensors) for part in content]
    if kind == DICT:
        return {key: decode(part, tensors) for key, part in content}
    return tensors[content]


def sharded_in(tree: Any) -> Iterator[str]:
    """Yield the names of the sharded tensors of *tree*."""
    if isinstance(tree, dict):
        ((kind, content),) = tree.items()
        if kind == SHARDED:
            yield content
        elif kind != TENSOR:
            for part in content if kind == LIST else [part for _, part in content]:
                yield from sharded_in(part)


def _put(tensor: Tensor, path: str, tensors: dict[str, Tensor]) -> str:
    # Copied at once: training continues while it is written.
    tensors[path] = tensor.detach().to("cpu", copy=True).contiguous()
    return path
