"""A stand-in for an accelerator: a torch device `stand_in` that computes with the CPU's kernels, and is strict.

Its tensors are not on the host: an operator that gets one of them along with a tensor of the host raises, except for a
scalar tensor, as on CUDA. Its bits are those of the CPU. `COPIES` counts the tensors that move up and down.

torch can have one such device per process, under its key PrivateUse1; `install` makes it. Nothing here needs a thread
to be prepared, since each tensor carries its device.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from simcluster.process.intra_op import use_one_thread

NAME = "stand_in"
aten = torch.ops.aten


ROUNDS_BY = 0.0
"""Relative error of sums of products on the device: 0 for the bits of the CPU."""


class Mixed(RuntimeError):
    """An operator got tensors of the host and of the device."""


@dataclass
class Copies:
    """Tensors and bytes that moved *up* to the device and *down* to the host, *reads* of single numbers, and how often
    a thread waited for the device.
    """

    up: int = 0
    up_bytes: int = 0
    down: int = 0
    down_bytes: int = 0
    reads: int = 0
    synchronised: int = 0


COPIES = Copies()
_lock = threading.Lock()
_here = threading.local()
_under_way: list[tuple[Tensor, Tensor]] = []


class DeviceTensor(Tensor):
    """A tensor of the device; *raw* holds its numbers, where no caller looks.

    torch's own code takes it for a tensor of the host without memory, so it chooses kernels as for the host, and
    autograd needs no thread for the device: a process with such threads could not be forked. Python is told the device.
    """

    raw: Tensor
    is_cpu = False
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, raw: Tensor) -> DeviceTensor:
        made: DeviceTensor = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, raw.size(), strides=raw.stride(), storage_offset=raw.storage_offset(), dtype=raw.dtype,
            layout=raw.layout,
        )  # fmt: skip
        made.raw = raw
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})

    def __repr__(self, **_: Any) -> str:
        return f"DeviceTensor({self.raw!r})"

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return torch.device(NAME, 0)

    def to(self, *args: Any, non_blocking: bool = False, copy: bool = False, **kwargs: Any) -> Tensor:
        """Move to a device, and change the dtype; `to(other tensor)`, which torch would answer itself, is not there."""
        assert not any(isinstance(arg, Tensor) for arg in args), "the stand-in has no to(tensor)"
        names = [arg for arg in args if isinstance(arg, (str, torch.device))] + [kwargs.pop("device", None)]
        kinds = [arg for arg in args if isinstance(arg, torch.dtype)] + [kwargs.pop("dtype", None)]
        assert not kwargs, f"the stand-in does not know {list(kwargs)}"
        where = None if names[0] is None else torch.device(names[0])
        here = self if kinds[0] in (None, self.dtype) and not copy else _converted(self, kinds[0] or self.dtype)
        return here if where is None or where.type == NAME else _taken_down(here)

    def cpu(self, *_: Any) -> Tensor:
        return self.to("cpu")

    # These two make `Module.to` swap a parameter for the moved one in place, as it is moved to a real device.

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["raw"], None

    @staticmethod
    def __tensor_unflatten__(parts: dict[str, Tensor], *_: Any) -> DeviceTensor:
        return DeviceTensor(parts["raw"])

    # Those that a device's tensor has, but torch denies to subclasses.

    def data_ptr(self) -> int:
        return self.raw.data_ptr()

    def untyped_storage(self) -> torch.UntypedStorage:
        return self.raw.untyped_storage()

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def numpy(self, **_: Any) -> Any:
        raise TypeError(f"can't convert {NAME}:0 device type tensor to numpy")


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    if not getattr(_here, "prepared", False):  # also torch's own threads, which pass backward
        _here.prepared = True
        use_one_thread()
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    if func is aten.copy_.default:
        return _copy(*args)
    if func is aten._local_scalar_dense.default:
        with _lock:
            COPIES.reads += 1
    host = [tensor for tensor in tensors if not isinstance(tensor, DeviceTensor) and tensor.dim()]
    if host:
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in host)
        raise Mixed(f"{func}: tensors of the host, of shapes {shapes}, and of the device")
    found = {id(tensor.raw): tensor for tensor in tensors if isinstance(tensor, DeviceTensor)}
    result = func(*tree_map(_raw, args), **tree_map(_raw, kwargs))
    if ROUNDS_BY and func in (aten.mm.default, aten.addmm.default):
        result = result * (1 + ROUNDS_BY)
    assert all(one.shape == one.raw.shape for one in found.values()), f"{func} resizes, which the stand-in cannot"
    return tree_map(lambda leaf: _wrapped(leaf, found), result)


def _raw(leaf: Any) -> Any:
    if isinstance(leaf, torch.device):
        return torch.device("cpu")
    return leaf.raw if isinstance(leaf, DeviceTensor) else leaf


def _wrapped(leaf: Any, known: dict[int, DeviceTensor]) -> Any:
    """Return the device's tensor of *leaf*: the same one where an operator returns what it was given."""
    if not isinstance(leaf, Tensor):
        return leaf
    return known[id(leaf)] if id(leaf) in known else DeviceTensor(leaf)


def _copy(into: Tensor, given: Tensor, non_blocking: bool = False) -> Tensor:
    is_here = isinstance(into, DeviceTensor)
    if is_here is not isinstance(given, DeviceTensor):
        _count("up" if is_here else "down", given)
    if non_blocking and not is_here:  # not there before an event says so
        with _lock:
            _under_way.append((into, _raw(given).clone()))
        into.view(torch.uint8).fill_(0x5A)
        return into
    _raw(into).copy_(_raw(given))
    return into


class Event:
    """All copies that were begun before it was recorded; they are made when a thread waits for it."""

    def record(self, stream: Any = None) -> None:
        with _lock:
            self._copies = list(_under_way)

    def query(self) -> bool:
        return False

    def synchronize(self) -> None:
        with _lock:
            for one in self._copies:
                if any(one is other for other in _under_way):
                    one[0].copy_(one[1])
            _under_way[:] = [one for one in _under_way if not any(one is other for other in self._copies)]


def _converted(given: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a copy on the device, which autograd follows."""
    made: Tensor = aten._to_copy.default(given, dtype=dtype)
    return made


class _TakenDown(torch.autograd.Function):
    """The copy on the host; a gradient goes the other way."""

    @staticmethod
    def forward(context: Any, given: DeviceTensor) -> Tensor:
        _count("down", given.raw)
        return given.raw.clone()

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Any:
        return gradient.to(torch.device(NAME, 0))


def _taken_down(given: Tensor) -> Tensor:
    found: Tensor = _TakenDown.apply(given)  # type: ignore[no-untyped-call]
    return found


def _count(way: str, tensor: Tensor) -> None:
    with _lock:
        setattr(COPIES, way, getattr(COPIES, way) + 1)
        setattr(COPIES, f"{way}_bytes", getattr(COPIES, f"{way}_bytes") + tensor.nbytes)


class _Module:
    """`torch.stand_in`, with the functions that torch and this project ask of a device."""

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return True

    def _is_in_bad_fork(self) -> bool:
        return False

    def device_count(self) -> int:
        return 1

    def current_device(self) -> int:
        return 0

    def manual_seed_all(self, seed: int) -> None:
        pass

    # Its random operators are the CPU's, which draw from the CPU's generator.

    def get_rng_state(self, device: Any = None) -> Tensor:
        return torch.get_rng_state()

    def set_rng_state(self, state: Tensor, device: Any = None) -> None:
        torch.set_rng_state(state)

    def manual_seed(self, seed: int) -> None:
        torch.default_generator.manual_seed(seed)

    def synchronize(self, device: Any = None) -> None:
        with _lock:
            COPIES.synchronised += 1

    Event = Event

    def current_stream(self, device: Any = None) -> None:
        return None


_kept: list[Any] = []
"""The registrations, which end with the objects that made them."""


def install() -> torch.device:
    """Make the device in this process, if it is not there yet, and return it."""
    if not _kept:
        torch.utils.rename_privateuse1_backend(NAME)
        torch._register_device_module(NAME, _Module())
        library = torch.library.Library("aten", "IMPL")
        library.impl("empty.memory_format", _empty, "PrivateUse1")
        library.impl("empty_strided", _empty_strided, "PrivateUse1")
        for name in ("arange", "arange.start", "arange.start_step"):  # the usual ones resize what they write to
            library.impl(name, _arange, "PrivateUse1")
        _kept.append(library)
        torch.tensor = _tensor
    return torch.device(NAME, 0)


_made_by_torch = torch.tensor


def _tensor(data: Any, *, device: Any = None, **how: Any) -> Tensor:
    """Make the tensor on the host and move it; torch would do both where no subclass is asked."""
    there = device is not None and torch.device(device).type == NAME
    made = _made_by_torch(data, device=None if there else device, **how)
    return made.to(device) if there else made


def _empty(size: Any, *, dtype: Any = None, memory_format: Any = None, **_: Any) -> Tensor:
    return DeviceTensor(torch.empty(size, dtype=dtype, memory_format=memory_format))


def _empty_strided(size: Any, stride: Any, *, dtype: Any = None, **_: Any) -> Tensor:
    return DeviceTensor(torch.empty_strided(size, stride, dtype=dtype))


def _arange(*args: Any, dtype: Any = None, **_: Any) -> Tensor:
    return DeviceTensor(torch.arange(*args, dtype=dtype))


@contextmanager
def counted() -> Iterator[Copies]:
    """Count from zero in the block."""
    global COPIES
    before, COPIES = COPIES, Copies()
    try:
        yield COPIES
    finally:
        COPIES = before
