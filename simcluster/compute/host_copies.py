"""Copies of tensors from a device to the host."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def is_on_host(tensor: Tensor) -> bool:
    """Return whether *tensor* can leave its node without a copy."""
    return tensor.is_cpu or tensor.is_meta


def can_leave(content: object) -> bool:
    """Return whether *content* can be passed to the transport without a copy.

    That is so if its tensors are on the host, and also if the transport will refuse it anyway.
    """
    return not isinstance(content, Tensor) or content.layout is not torch.strided or is_on_host(content)


def to_host(tensor: Tensor) -> Tensor:
    """Return *tensor* itself if it is on the host, otherwise a copy on the host."""
    return tensor if is_on_host(tensor) else tensor.detach().cpu()


def moved(value: Any, device: torch.device) -> Any:
    """Return *value* with all tensors moved to *device*, including those in nested lists and
    dicts.
    """
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {key: moved(part, device) for key, part in value.items()}
    return [moved(part, device) for part in value] if isinstance(value, list) else value


class HostCopies:
    """Copies of *tensors* on the host, which are complete once `arrived` has returned.

    On CUDA the copies are made in pinned memory while the host continues. Later changes of
    *tensors* do not affect them, since later work on the device runs after the copying.
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
        """Wait until the copies are complete, without blocking the event loop."""
        if self._event is not None and not self._event.query():
            await asyncio.get_running_loop().run_in_executor(None, self._event.synchronize)


def overlaps(device: torch.device) -> bool:
    """Return whether copies from *device* can run while the host continues."""
    return device.type == "cuda"


def pinned_like(tensor: Tensor) -> Tensor:
    """Return a new tensor like *tensor* in pinned memory, which a device can access without the
    host.
    """
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)


def _begun(tensor: Tensor) -> Tensor:
    return _now(tensor) if is_on_host(tensor) else pinned_like(tensor).copy_(tensor, non_blocking=True)


def _now(tensor: Tensor) -> Tensor:
    """Return a copy of *tensor* on the host, or *tensor* itself if it has no values."""
    return tensor if tensor.is_meta else tensor.to("cpu", copy=True).contiguous()
