"""The operators that collectives combine tensors with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from simcluster.errors import UsageError
from simcluster.spelling import nearest

Op = Literal["sum", "mean", "max", "min"]

Combine = Callable[..., Tensor]
"""A function of two tensors, with an argument `out`, such as torch.maximum."""


def plus(left: Tensor, right: Tensor, *, out: Tensor) -> Tensor:
    """Return *left* plus *right*, in *out*. In place it is `add_`, since `torch.add` into an `out` on
    meta imports torch's compiler.
    """
    return left.add_(right) if out is left else torch.add(left, right, out=out)


_COMBINES: dict[str, Combine] = {"sum": plus, "mean": plus, "max": torch.maximum, "min": torch.minimum}


def prepared(tensor: Tensor, op: str) -> tuple[Tensor, dict[str, Combine]]:
    """Return (*tensor* as a vector that *op* can combine, the arguments of a schedule that does).

    For max and min, -0 becomes 0, so that the bits of the result do not depend on the order. Raise
    UsageError for an unknown *op*, and ValueError for a mean of integers or an order of complex
    numbers.
    """
    if op not in _COMBINES:
        raise UsageError("op", repr(op), nearest(op, _COMBINES))
    vector = tensor.reshape(-1)
    if op == "mean" and not (tensor.is_floating_point() or tensor.is_complex()):
        raise ValueError(f"a mean of {tensor.dtype}: expected floating-point numbers, or op sum")
    if _COMBINES[op] is plus:
        return vector, {}
    if tensor.is_complex():
        raise ValueError(f"a {op} of {tensor.dtype}: expected real numbers, since complex ones have no order")
    return vector + 0.0 if tensor.is_floating_point() else vector, {"combine": _COMBINES[op]}
