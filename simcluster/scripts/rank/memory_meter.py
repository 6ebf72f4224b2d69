"""Measure the memory of a script's tensors: the bytes of all live storages, and their peak.

The temporary memory inside an operator is not counted. The meter has only weak references to
storages, so a tensor counts for as long as something else refers to it: an autograd graph, a
bucket, or the state of an optimizer.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from simcluster.scripts.rank.replacements import around


class MemoryMeter:
    """The memory of this process's tensors: *live_bytes* now, and *peak_bytes* since the start.

    *recent_peak_bytes* is the peak since the script last reset its peak statistics. All three stay
    0 unless *is_counting* is set.
    """

    def __init__(self) -> None:
        self.is_counting = False
        self.live_bytes = 0
        self.peak_bytes = 0
        self.recent_peak_bytes = 0
        # Address of a storage -> (the storage, its size in bytes).
        self._storages: dict[int, tuple[weakref.ref[Any], int]] = {}

    def see(self, result: Any) -> None:
        """Count the storages of the tensors in *result*, which an operator has returned."""
        if isinstance(result, Tensor):
            self._see_storage(result)
        elif isinstance(result, (list, tuple)):
            for one in result:
                self.see(one)

    def hold(self, size_bytes: int) -> None:
        """Add *size_bytes*, which may be negative, to the live bytes.

        The process group calls this for its copies of tensors in flight.
        """
        if not self.is_counting:
            return
        self.live_bytes += size_bytes
        if self.live_bytes > self.recent_peak_bytes:
            self.recent_peak_bytes = self.live_bytes
            self.peak_bytes = max(self.peak_bytes, self.live_bytes)

    def reset_peak(self) -> None:
        """Start *recent_peak_bytes* again from the live bytes, when the script resets its peak
        statistics.
        """
        self.recent_peak_bytes = self.live_bytes

    def follow_resizes(self) -> None:
        """From now on, also count in-place changes of a storage's size. Fully sharded data
        parallelism makes such changes.
        """

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
