"""The cost of a script's computing: counted from what torch dispatches, or measured as processor time, or free."""

from __future__ import annotations

import time
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

from simcluster.compute.matrix_product import MATRIX_PRODUCT, PRODUCT_FLOPS, matrix_product_s
from simcluster.scripts.messages import ScriptWork
from simcluster.scripts.rank.memory_meter import MemoryMeter
from simcluster.workloads.operator_costs import call_cost

COUNTED, MEASURED, FREE = COSTS = ("counted", "measured", "free")

DEVICE_OF = torch.ops.prim.device.default
"""Torch asks tensors without values for their device more often than it calls operators on them."""

_processor_s = time.thread_time  # of the real clock: the script's own is the cluster's

_VIEWS = frozenset({
    "view", "_unsafe_view", "t", "transpose", "permute", "slice", "select", "expand", "unsqueeze", "squeeze", "detach",
    "alias", "as_strided", "split", "unbind", "chunk", "narrow", "reshape", "unfold", "diagonal", "split_with_sizes",
    "_reshape_alias", "lift_fresh",
})  # fmt: skip
"""Operators that move no bytes and launch nothing on a device."""


class ProcessorMeter:
    """Measures the processor time of the script's thread, as products of matrices: *flops_per_s* of this machine.

    The cluster's device takes as many times longer or less as it does for the product. At 0 computing is free.
    """

    is_paused = False

    def __init__(self, flops_per_s: float) -> None:
        self.memory = MemoryMeter()
        self._flops_per_s = flops_per_s
        self._began_s = _processor_s()

    def take(self) -> ScriptWork:
        """Return the work since the last call."""
        began_s, self._began_s = self._began_s, _processor_s()
        return ScriptWork((self._began_s - began_s) * self._flops_per_s, kind=MATRIX_PRODUCT)


def holds_parts(types: Any) -> bool:
    """Return whether an operator is on DTensors, which lie on several ranks in parts.

    A mode leaves it to them, who know what to do: the operators on the parts come back to the mode.
    """
    return any(kind.__name__ == "DTensor" for kind in types)


class WorkMeter(TorchDispatchMode):
    """Counts the work of the script's thread, the backward pass included, unless it *is_paused*."""

    def __init__(self) -> None:
        super().__init__()
        self.is_paused = False
        self.memory = MemoryMeter()
        self.memory.is_counting = True
        self._flops = 0.0
        self._bytes = 0
        self._operators = 0
        self._known: dict[Any, tuple[int | None, int]] = {}
        self._moves: dict[Any, bool] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # what torch wraps around a mode otherwise takes longer than the mode

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is DEVICE_OF and isinstance(args[0], FakeTensor):
            return args[0].fake_device
        if types and holds_parts(types):
            return NotImplemented
        result = func(*args, **kwargs) if kwargs else func(*args)
        if not self.is_paused:
            self.memory.see(result)
            self._count(func, args, kwargs, result)
        return result

    def take(self) -> ScriptWork:
        """Return the work since the last call."""
        spent = ScriptWork(self._flops, self._bytes, self._operators, self.memory.peak_bytes)
        self._flops, self._bytes, self._operators = 0.0, 0, 0
        return spent

    def _count(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        moves = self._moves.get(func)
        if moves is None:
            moves = self._moves[func] = func.overloadpacket.__name__ not in _VIEWS
        if not moves:
            return
        named = kwargs.values() if kwargs else ()
        key = (func, *[_kind(value) for value in (*args, *named, result)])
        cost = self._known.get(key)
        if cost is None:
            cost = self._known[key] = call_cost(func.overloadpacket, args, kwargs or {}, result)
        self._flops += cost[0] or 0
        self._bytes += cost[1]
        self._operators += 1


Meter: TypeAlias = WorkMeter | ProcessorMeter


def meter_for(cost: str) -> Meter:
    """Return the meter for *cost*, one of COSTS."""
    if cost == COUNTED:
        return WorkMeter()
    return ProcessorMeter(PRODUCT_FLOPS / matrix_product_s() if cost == MEASURED else 0.0)


def _kind(value: Any) -> Any:
    """Return what the cost of an operator depends on, of one of its arguments or of its result."""
    if isinstance(value, Tensor):
        return value.shape, value.dtype
    if isinstance(value, (list, tuple)):
        return tuple([_kind(each) for each in value])
    return value if isinstance(value, int) else None
