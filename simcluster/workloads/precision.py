"""The precision of a forward pass: float32, or bfloat16 with weights, gradients and loss in float32."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import torch
from torch import Tensor

Precision = Literal["f32", "bf16"]


def forward_in(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """Return a context for a forward pass on *device*.

    torch's autocast casts float32 inputs of products to bfloat16. Its cache is off: all threads
    share it, so that the order of sums would depend on what another rank does.
    """
    if precision == "f32":
        return nullcontext()
    kind = "cpu" if device.type == "meta" else device.type
    return torch.autocast(kind, torch.bfloat16, cache_enabled=False)


def loss_in_f32(loss: Callable[[Any, Tensor], Tensor]) -> Callable[[Any, Tensor], Tensor]:
    """Return *loss* as a function of outputs in float32, if the outputs are a tensor in bfloat16."""

    def widened(outputs: Any, targets: Tensor) -> Tensor:
        is_narrow = isinstance(outputs, Tensor) and outputs.dtype is torch.bfloat16
        return loss(outputs.float() if is_narrow else outputs, targets)

    return widened
