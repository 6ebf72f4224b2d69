"""Copies of tensors from a device to the host."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def is_on_host(tensor: Tensor) -> bool:
    """Return whether *tensor* needs no copy to leave its node."""
    return tensor.is_cpu or tensor.is_meta


def can_leave(content: object) -> bool:
    """Return whether the transport can take *content* as it is, or will refuse it."""
    return not isinstance(content, Tensor) or content.layout is not torch.strided or is_on_host(content)


def to_host(tensor: Tensor) -> Tensor:
    """Return *tensor* if it is on the host, else a copy."""
    return tensor if is_on_host(tensor) else tensor.detach().cpu()


def moved(value: Any, device: torch.device) -> Any:
    """Return *value*, in which lists and dicts may be nested, with its tensors on *device*."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {key: moved(part, device) for key, part in value.items()}
    return [moved(part, device) for part in value] if isinstance(value, list) else value


class HostCopies:
    """Copies of *tensors* on the host, complete once `arrived` has returned; later changes do not affect them.

    On CUDA they are made while the host continues, in pinned memory; what the device is given later comes after them.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._event: Any = None
        away = next((tensor.device for tensor in tensors if not is_on_host(tensor)), None)
        if away is not None and overlaps(away):
            self.tensors = [_begun(tensor.detach()) for tensor in tensors]
            self._event = torch.get_device_module(away).Event()
            self._event.record(torch.get_device_module(away).current_stream(away))
        else:
            self.tensors = [_now(tensor.detach()) for tensor in tensors]

    async def arrived(self) -> None:
        """Wait for the copies; the event loop turns meanwhile."""
        if self._event is not None and not self._event.query():
            await asyncio.get_running_loop().run_in_executor(None, self._event.synchronize)


def overlaps(device: torch.device) -> bool:
    """Return whether copies from *device* are made while the host continues."""
    return device.type == "cuda"


def pinned_like(tensor: Tensor) -> Tensor:
    """Return a new tensor like *tensor* in memory of the host that a device can write to by itself."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)


def _begun(tensor: Tensor) -> Tensor:
    return _now(tensor) if is_on_host(tensor) else pinned_like(tensor).copy_(tensor, non_blocking=True)


def _now(tensor: Tensor) -> Tensor:
    """Return a copy, or *tensor* itself if it has no values."""
    return tensor if tensor.is_meta else tensor.to("cpu", copy=True).contiguous()
