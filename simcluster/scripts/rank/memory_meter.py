"""Follows the memory of a script's tensors: the bytes of all storages that are alive, and the most that were.

Temporary memory inside of an operator is not seen. Storages are followed by weak references, so a tensor counts as long
as anything holds it: an autograd graph, a bucket, an optimizer's state.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from simcluster.scripts.rank.replacements import around


class MemoryMeter:
    """The memory of this process's tensors: *live_bytes* now, and *peak_bytes*, the most since the start.

    *recent_peak_bytes* is the most since the script last reset its statistics. All are 0 unless it *is_counting*.
    """

    def __init__(self) -> None:
        self.is_counting = False
        self.live_bytes = 0
        self.peak_bytes = 0
        self.recent_peak_bytes = 0
        self._storages: dict[int, tuple[weakref.ref[Any], int]] = {}  # and their sizes, by their address

    def see(self, result: Any) -> None:
        """Count the storages of *result*, what an operator returned."""
        if isinstance(result, Tensor):
            self._see_storage(result)
        elif isinstance(result, (list, tuple)):
            for one in result:
                self.see(one)

    def hold(self, size_bytes: int) -> None:
        """Count *size_bytes* more, or less, such as the process group's copies of tensors that travel."""
        if not self.is_counting:
            return
        self.live_bytes += size_bytes
        if self.live_bytes > self.recent_peak_bytes:
            self.recent_peak_bytes = self.live_bytes
            self.peak_bytes = max(self.peak_bytes, self.live_bytes)

    def reset_peak(self) -> None:
        """Begin again with the most that the script asks for; *peak_bytes* stays."""
        self.recent_peak_bytes = self.live_bytes

    def follow_resizes(self) -> None:
        """Count storages that are resized in place, as fully sharded data parallel training does, from now on."""

        @around(torch.UntypedStorage, "resize_")
        def resize(real: Any, storage: torch.UntypedStorage, size: int) -> Any:
            result = real(storage, size)
            known = self._storages.get(storage._cdata)
            if known is not None:
                size_bytes = storage.nbytes()
                self._storages[storage._cdata] = known[0], size_bytes
                self.hold(size_bytes - known[1])
            return result

    def _see_storage(self, tensor: Tensor) -> None:
        if tensor.layout is not torch.strided:
            return  # a sparse tensor has no storage
        storage = tensor.untyped_storage()
        address = storage._cdata
        if address in self._storages:
            return
        if (tensor.fake_device.type == "meta") if isinstance(tensor, FakeTensor) else tensor.is_meta:
            return
        size_bytes = storage.nbytes()
        self._storages[address] = weakref.ref(storage, lambda _: self._forget(address)), size_bytes
        self.hold(size_bytes)

    def _forget(self, address: int) -> None:
        self.hold(-self._storages.pop(address)[1])
