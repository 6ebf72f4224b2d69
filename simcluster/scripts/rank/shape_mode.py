"""Timing-only scripts (`numerics: none`): tensors have shapes but no values, and take no memory.

Integers and booleans that are computed only from integers keep their values, since indices, tokens
and lengths decide what a script does next. A script that prints an unknown value gets NaN, and a
script that branches on one fails.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.optim import optimizer
from torch.utils import _foreach_utils
from torch.utils.weak import WeakIdKeyDictionary

from simcluster.scripts.rank.node_link import script_line
from simcluster.scripts.rank.replacements import around
from simcluster.scripts.rank.work_meter import DEVICE_OF, holds_parts
from simcluster.unknown_number import UNKNOWN, Undecidable
from simcluster.workloads.operator_watch import OperatorWatch

_FAKE = FakeTensorMode(allow_non_fake_inputs=True)
_VALUE_OF = "_local_scalar_dense"
_REMEDY = "set numerics: real, or let integers, shapes or options decide"
_GROUP_CALLS = "_c10d_functional"
_ON_CPU = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)


class ShapeMode(OperatorWatch):
    """A mode that computes only the shapes of results, except for integers with known values."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        # Torch's memo of conversions refers to tensors, and a module's `to` refuses to swap tensors
        # with other references. So the memo is cleared after each operator.
        self._converted = _FAKE.fake_tensor_converter.meta_converter.tensor_memo
        # Storages of integers that unknown values have overwritten.
        self._overwritten = WeakIdKeyDictionary()
        # One entry for each pending `ask`: whether its answer depends on unknown values.
        self._asks: list[bool] = []
        self._has_warned = False
        self.is_off = False

    def has_values(self, tensor: Tensor) -> bool:
        """Return whether the values of *tensor* are known."""
        if isinstance(tensor, FakeTensor) or tensor.is_meta:
            return False
        if tensor.is_floating_point() or tensor.is_complex():
            return False
        return not self._overwritten or tensor.untyped_storage() not in self._overwritten

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.is_off:
            return func(*args, **kwargs)
        if func is DEVICE_OF and isinstance(args[0], FakeTensor):
            return args[0].fake_device
        if holds_parts(types):
            return NotImplemented
        given = list(_tensors_in((*args, *kwargs.values())))
        if all(map(self._is_real, given)) if given else _takes_no_memory(func, kwargs):
            result = func(*args, **kwargs)
            if all(map(self._is_real, _tensors_in((result,)))):
                # Otherwise the operator has turned integers into floating-point numbers.
                return result
        if func.namespace == _GROUP_CALLS:  # bypass torch's fake version, which calls no group
            return func.redispatch(_ON_CPU, *args, **kwargs)
        if func.overloadpacket.__name__ == _VALUE_OF:
            return self._value_of(*args)
        if func._schema.is_mutable:
            self._note_written(func, args, kwargs)
        try:
            result = _FAKE.dispatch(func, types, args, kwargs)
        except (DataDependentOutputException, DynamicOutputShapeException):
            raise _undecidable() from None
        self._converted.clear()
        if not given and isinstance(result, FakeTensor) and not result.is_floating_point():
            return func(*args, **kwargs)
        return result

    def ask(self, question: Callable[[Tensor], Any], tensor: Tensor) -> Any:
        """Return *question*(*tensor*), or UNKNOWN with a warning if the answer depends on unknown
        values.
        """
        self._asks.append(False)
        try:
            found = question(tensor)
        finally:
            is_unknown = self._asks.pop()
        return UNKNOWN if is_unknown else found

    def _is_real(self, tensor: Tensor) -> bool:
        """Return whether operators may run on *tensor* itself.

        They may if its values are known, or if the script put the tensor on the meta device.
        """
        return self.has_values(tensor) or (tensor.is_meta and not isinstance(tensor, FakeTensor))

    def _value_of(self, tensor: Tensor) -> Any:
        if isinstance(tensor, FakeTensor) and tensor.constant is not None:
            return tensor.constant.item()
        if not self._asks:
            raise _undecidable()
        self._asks[-1] = True
        if not self._has_warned:
            self._has_warned = True
            print(f"{script_line()} asks for a value, which numerics: none does not compute: NaN", file=sys.stderr)
        return 0

    def _note_written(self, func: Any, args: Any, kwargs: Any) -> None:
        """Mark the values of all tensors that *func* writes to as unknown from now on."""
        for place, argument in enumerate(func._schema.arguments):
            if argument.is_write:
                given = kwargs.get(argument.name) if argument.kwarg_only else args[place] if place < len(args) else None
                for tensor in _tensors_in((given,)):
                    if self.has_values(tensor):
                        self._overwritten[tensor.untyped_storage()] = True


def _tensors_in(values: Iterable[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors_in(value)


def _takes_no_memory(func: Any, how: dict[str, Any]) -> bool:
    """Return whether an operator without tensors as arguments needs no memory.

    That is so if it makes a tensor on the meta device, or belongs to a profiler.
    """
    device = how.get("device")
    return func.namespace == "profiler" or (device is not None and torch.device(device).type == "meta")


def _undecidable() -> Undecidable:
    return Undecidable(f"{script_line()} decides by a value that numerics: none does not compute; {_REMEDY}")


def _install_files(mode: ShapeMode) -> None:
    """Make `torch.save` write only the shapes of tensors without values, and let `torch.load` read
    them.
    """

    @around(FakeTensor, "__reduce_ex__")
    def reduce(_: Any, self: FakeTensor, protocol: Any) -> Any:
        if self.constant is not None:
            return self.constant.__reduce_ex__(protocol)
        return tensor_without_values, (tuple(self.shape), self.stride(), self.dtype)

    @around(torch, "load")
    def load(real: Any, *args: Any, **how: Any) -> Any:
        mode.is_off = True
        try:
            return real(*args, **how)
        finally:
            mode.is_off = False

    torch.serialization.add_safe_globals([tensor_without_values])


def tensor_without_values(shape: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Return a tensor without values, with this shape, stride and dtype.

    Files written by `torch.save` refer to this function by name and call it when they are loaded.
    """
    return FakeTensor(_FAKE, torch.empty_strided(shape, stride, dtype=dtype, device="meta"), torch.device("cpu"))


def install_shapes(mode: ShapeMode) -> None:
    """Let a script print and save tensors without values; `item`, `tolist` and `format` give NaN
    for them.
    """

    @around(Tensor, "item")
    def item(real: Any, self: Tensor) -> Any:
        return mode.ask(real, self)

    @around(Tensor, "tolist")
    def as_list(real: Any, self: Tensor) -> Any:
        if mode.has_values(self):
            return real(self)
        return [one.tolist() for one in self] if self.dim() else self.item()

    @around(Tensor, "__format__")
    def formatted(real: Any, self: Tensor, form: str) -> Any:
        is_number = isinstance(self, FakeTensor) and form and not self.dim()
        return format(self.item(), form) if is_number else real(self, form)

    @around(Tensor, "__repr__")
    def written(real: Any, self: Tensor, **how: Any) -> Any:
        is_stale = type(self) is Tensor and not self.is_floating_point() and not mode.has_values(self)
        return f"tensor(unknown, size={tuple(self.shape)})" if is_stale else real(self, **how)

    @around(Tensor, "numpy")
    def as_numpy(real: Any, self: Tensor, **how: Any) -> Any:
        if isinstance(self, FakeTensor) or not (self.is_floating_point() or mode.has_values(self)):
            raise _undecidable()
        return real(self, **how)

    def step_scaled(_: object, optimizer: Any, __: object, *args: Any, **how: Any) -> Any:
        # Never skip a step, since no gradient is known to be infinite.
        return optimizer.step(*args, **how)

    torch.amp.GradScaler._maybe_opt_step = step_scaled  # type: ignore[method-assign]
    for kinds in (optimizer._foreach_supported_types, _foreach_utils._foreach_supported_types):
        kinds.append(FakeTensor)  # so that optimizers call the same operators as with values
    _install_files(mode)
