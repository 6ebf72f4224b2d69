"""Counts what work holds for a moment: the temporaries of its operators."""

from __future__ import annotations

import weakref
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_leaves

from simcluster.workloads.operator_watch import OperatorWatch


class Scratch(OperatorWatch):
    """*most_bytes*: the most bytes at a time of tensors that this thread's operators make while entered.

    Views count with the tensor that they show; what stays in use counts until it goes.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.most_bytes = self._now_bytes = 0
        self._users: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {_storage(leaf) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)}
        out = func(*args, **(kwargs or {}))
        for tensor in {id(leaf): leaf for leaf in tree_leaves(out) if isinstance(leaf, Tensor)}.values():
            key, size_bytes = _storage(tensor), tensor.untyped_storage().nbytes()
            if key not in self._users:
                if key in given:  # it was there before
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
