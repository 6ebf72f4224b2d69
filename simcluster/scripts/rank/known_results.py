"""Remembers what operators return for tensors without values: their shapes follow from those of the arguments.

FakeTensorMode remembers them too, but making one of its keys takes longer than most operators here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, in_kernel_invocation_manager

CPU = torch.device("cpu")
_NAMESPACES = frozenset({"aten", "prims", "fsdp"})
_PLAIN = frozenset({int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format})
_UNSEEN, _BY_KERNEL, _BY_TORCH = "unseen", "by kernel", "by torch"


class KnownResults:
    """Runs operators on tensors of *fake*, and lets it find the shapes of each result only once."""

    def __init__(self, fake: FakeTensorMode) -> None:
        self._fake = fake
        fake.cache_enabled = False  # it would remember the same results again
        self._attributes = vars(FakeTensor(fake, torch.empty(0, device="meta"), CPU))
        self._known: dict[Any, Any] = {}

    def of(self, func: Any, types: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Return the result of *func*, as `FakeTensorMode.dispatch` does."""
        if func.namespace not in _NAMESPACES:
            return self._fake.dispatch(func, types, args, kwargs)
        with torch._C.DisableTorchFunction():
            try:
                key = _key(func, args, kwargs)
            except TypeError:
                return self._fake.dispatch(func, types, args, kwargs)
            way = self._known.get(key, _UNSEEN)
            if way is not _UNSEEN and way is not _BY_TORCH:
                return self._again(way, func, args, kwargs)
            result = self._fake.dispatch(func, types, args, kwargs)
            if way is _UNSEEN:
                self._known[key] = self._way(key, func, args, kwargs, result)
            return result

    def _way(self, key: Any, func: Any, args: Any, kwargs: dict[str, Any], result: Any) -> Any:
        """Return how to make *result* again: of new tensors and arguments, by the kernel if it views one, or by torch.

        What changes the shape of an argument is left to torch.
        """
        if torch.Tag.inplace_view in func.tags:
            return _BY_TORCH
        given = list(tensors_in((*args, *kwargs.values())))
        try:
            for way in (_plan(result, given), _BY_KERNEL):
                again = self._again(way, func, args, kwargs)
                forms = [(_kind(one), _sharing([*given, *tensors_in((one,))])) for one in (result, again)]
                if forms[0] == forms[1] and _key(func, args, kwargs) == key:
                    return way
        except (TypeError, RuntimeError):
            pass  # a result with values, or not strided, or without a kernel
        return _BY_TORCH

    def _again(self, way: Any, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        if way is not _BY_KERNEL:
            return self._made(way, list(tensors_in((*args, *kwargs.values()))))
        with in_kernel_invocation_manager(self._fake):
            result = func(*args, **kwargs)
        return self._wrapped(result)

    def _wrapped(self, result: Any) -> Any:
        if isinstance(result, (list, tuple)):
            return type(result)(map(self._wrapped, result))
        is_bare = isinstance(result, Tensor) and not isinstance(result, FakeTensor)
        return self._without_values(result) if is_bare else result

    def _made(self, plan: Any, given: list[Tensor]) -> Any:
        if isinstance(plan, list):
            return tuple([self._made(one, given) for one in plan])
        if isinstance(plan, tuple):
            shape, stride, dtype = plan
            return self._without_values(torch.empty_strided(shape, stride, dtype=dtype, device="meta"))
        return None if plan is None else given[plan]

    def _without_values(self, meta: Tensor) -> FakeTensor:
        """Return `FakeTensor(self._fake, meta, CPU)`, in a fifth of the time."""
        made = Tensor._make_subclass(FakeTensor, meta, False, dispatch_device=True, device_for_backend_keys=CPU)
        torch._C._set_throw_on_mutable_data_ptr(made)
        vars(made).update(self._attributes)
        return made


def tensors_in(values: Iterable[Any]) -> Iterator[Tensor]:
    """Yield the tensors of an operator's arguments or results, those of lists included."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors_in(value)


def _key(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Return what a result depends on, its values excepted. Raise TypeError as `_kind` does."""
    return func, torch.get_default_dtype(), _kind(args), tuple(kwargs), _kind(tuple(kwargs.values()))


def _kind(value: Any) -> Any:
    """Return what the shape of a result depends on. Raise TypeError for what has more to it, such as known values."""
    if isinstance(value, Tensor):
        is_fake = isinstance(value, FakeTensor)
        if value.constant is not None or value.fake_device != CPU if is_fake else not value.is_meta:  # type: ignore[attr-defined]
            raise TypeError
        if value.layout is not torch.strided:
            raise TypeError
        size_bytes = value.untyped_storage().nbytes()
        layout = tuple(value.shape), value.stride(), value.storage_offset(), size_bytes
        return layout, value.dtype, value.requires_grad, torch._C._dispatch_keys(value).raw_repr()
    if isinstance(value, (list, tuple)):
        return tuple(map(_kind, value))
    if type(value) not in _PLAIN:
        raise TypeError
    return type(value), value


def _plan(result: Any, given: list[Tensor]) -> Any:
    """Return *result* as the numbers of arguments that it is, and the forms of its new tensors."""
    if isinstance(result, (list, tuple)):
        return [_plan(one, given) for one in result]
    if not isinstance(result, Tensor):
        return None
    is_argument = [result is one for one in given]
    return is_argument.index(True) if any(is_argument) else (tuple(result.shape), result.stride(), result.dtype)


def _sharing(tensors: list[Tensor]) -> Any:
    """Return which of *tensors* are the same, and which are in the same memory."""
    same, memory = list(map(id, tensors)), [one.untyped_storage()._cdata for one in tensors]
    return [same.index(one) for one in same], [memory.index(one) for one in memory]
