"""A count of the memory of the temporaries that torch's operators make."""

from __future__ import annotations

import weakref
from typing import Any

from torch import Tensor

from simcluster.workloads.operator_watch import OperatorWatch, tensors_in


class Scratch(OperatorWatch):
    """A watch that counts the peak memory of the tensors that this thread makes while it is
    entered, in *most_bytes*.

    A view counts together with its base tensor. A tensor counts until nothing refers to it.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.most_bytes = self._now_bytes = 0
        self._users: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = set(map(_storage, tensors_in((args, kwargs))))
        out = func(*args, **(kwargs or {}))
        for tensor in {id(tensor): tensor for tensor in tensors_in(out)}.values():
            key, size_bytes = _storage(tensor), tensor.untyped_storage().nbytes()
            if key not in self._users:
                if key in given:  # the memory of an argument, which this operator did not make
                    continue
                self._users[key] = 0
                self._now_bytes += size_bytes
            self._users[key] += 1
            weakref.finalize(tensor, self._gone, key, size_bytes).atexit = False
        self.most_bytes = max(self.most_bytes, self._now_bytes)
        return out

    def _gone(self, key: int, size_bytes: int) -> None:
        self._users[key] -= 1
        if not self._users[key]:
            del self._users[key]
            self._now_bytes -= size_bytes


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
