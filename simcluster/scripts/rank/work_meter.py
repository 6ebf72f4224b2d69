"""Measure what a script's computation costs.

The cost is counted by torch's operators, measured as processor time, or free.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from simcluster.compute.matrix_product import MATRIX_PRODUCT, PRODUCT_FLOPS, matrix_product_s
from simcluster.scripts.messages import ScriptWork
from simcluster.scripts.rank.memory_meter import MemoryMeter
from simcluster.workloads.operator_costs import call_cost
from simcluster.workloads.operator_watch import OperatorWatch

COUNTED, MEASURED, FREE = COSTS = ("counted", "measured", "free")

DEVICE_OF = torch.ops.prim.device.default
"""The operator that returns the device of a fake tensor. Torch calls it more often than any other
operator.
"""

_processor_s = time.thread_time  # bound before the script's clocks are replaced by the cluster's

_VIEWS = frozenset({
    "view", "_unsafe_view", "t", "transpose", "permute", "slice", "select", "expand", "unsqueeze", "squeeze", "detach",
    "alias", "as_strided", "split", "unbind", "chunk", "narrow", "reshape", "unfold", "diagonal", "split_with_sizes",
    "_reshape_alias", "lift_fresh",
})  # fmt: skip
"""Operators that neither move bytes nor launch a kernel on a device."""


class ProcessorMeter:
    """A meter of the processor time of the script's thread, as FLOPs of a matrix product.

    *flops_per_s* is this machine's rate for the product; a rate of 0 makes computation free. The
    cluster's device is assumed to run the script faster or slower by the same factor as the
    product.
    """

    is_paused = False

    def __init__(self, flops_per_s: float) -> None:
        self.memory = MemoryMeter()
        self._flops_per_s = flops_per_s
        self._began_s = _processor_s()

    def take(self) -> ScriptWork:
        """Return the work since the previous call."""
        began_s, self._began_s = self._began_s, _processor_s()
        return ScriptWork((self._began_s - began_s) * self._flops_per_s, kind=MATRIX_PRODUCT)


def holds_parts(types: Any) -> bool:
    """Return whether *types* contains DTensor, which has its parts on several ranks.

    A mode leaves operators on DTensors to torch, which then calls the operators on the parts, and
    the mode sees these.
    """
    return any(kind.__name__ == "DTensor" for kind in types)


class WorkMeter(OperatorWatch):
    """A counter of the work of the script's thread, including backward passes.

    It does not count while *is_paused* is set.
    """

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
        """Return the work since the previous call."""
        spent = ScriptWork(self._flops, self._bytes, self._operators, self.memory.peak_bytes)
        self._flops = 0.0
        self._bytes = 0
        self._operators = 0
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


Meter = WorkMeter | ProcessorMeter


def meter_for(cost: str) -> Meter:
    """Return the meter for *cost*, one of COSTS."""
    if cost == COUNTED:
        return WorkMeter()
    return ProcessorMeter(PRODUCT_FLOPS / matrix_product_s() if cost == MEASURED else 0.0)


def _kind(value: Any) -> Any:
    """Return a key that identifies an argument or a result of an operator, as far as the cost
    depends on it.
    """
    if isinstance(value, Tensor):
        return value.shape, value.dtype
    if isinstance(value, (list, tuple)):
        return tuple([_kind(each) for each in value])
    return value if isinstance(value, int) else None
