"""A tape that records the operators that make a model's tensors.

It can compute any single tensor without making the others.

Under a tape, new tensors are on torch's meta device, without memory. A random operator still runs
once, on a temporary tensor, so that torch's generator advances as usual; a replay starts from the
generator's state before that run.

With *alike*, the tape skips that run, and a replay repeats a few draws instead of drawing every
number. This is for weights that are never trained: drawing them would take most of the time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Self

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only
from torch.utils.weak import WeakIdKeyDictionary

from simcluster.workloads.operator_watch import OperatorWatch, tensors_in

_META: Final = torch.device("meta")

_IGNORES_VALUES: Final = frozenset(
    (
        "uniform_",
        "normal_",
        "random_",
        "exponential_",
        "cauchy_",
        "log_normal_",
        "geometric_",
        "bernoulli_",
        "rand_like",
        "randn_like",
        "randint_like",
    )
)
"""The random operators that take one tensor and draw independently of its values."""

_DRAWN_ALIKE: Final = 65_521
"""The number of random values after which they repeat. It is prime, so that the rows of a matrix
differ.
"""


class Unrecordable(Exception):
    """The error for an operator that a tape cannot replay to the bit, or for a model that cannot be
    deferred.
    """


@dataclass(frozen=True)
class StoragePlace:
    """The place of a tensor: the number of its *storage* on the tape, and its layout within that
    storage.
    """

    storage: int
    dtype: torch.dtype
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class _TapeEntry:
    """A recorded call of *func*, with a StoragePlace in place of each tensor in its arguments.

    *made*: its outputs; *touched*: the storages that it reads or writes.

    *drawn_from*: the generator's state before the call, if it draws.
    """

    func: Callable[..., Any]
    args: Any
    kwargs: Any
    made: list[StoragePlace]
    touched: frozenset[int]
    drawn_from: Tensor | None


class _CpuAnswers(TorchFunctionMode):
    """A mode that makes tensors claim to be on the CPU, since some initializers do nothing on the
    meta device.
    """

    _ANSWERS: Final = {
        getattr(Tensor, name).__get__: answer
        for name, answer in (("is_meta", False), ("is_cpu", True), ("device", torch.device("cpu")))
    }

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._ANSWERS[func] if func in self._ANSWERS else func(*args, **(kwargs or {}))


class Tape(OperatorWatch):
    """A record of how this thread makes tensors while the tape is entered.

    The caller must have borrowed torch's generator.

    *alike*: whether random values need only have the right distribution. Even then, every replay
    gives the same values.
    """

    def __init__(self, *, alike: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._alike = alike
        self._entries: list[_TapeEntry] = []
        self._writers: defaultdict[int, list[int]] = defaultdict(list)
        self._numbers: dict[int, int] = {}
        self._storages: list[torch.UntypedStorage] = []  # kept alive so that no address is reused
        self._constants: dict[int, torch.UntypedStorage] = {}
        self._made: Any = WeakIdKeyDictionary()
        self._claims = _CpuAnswers()
        self._scratch: Tensor | None = None

    @property
    def alive(self) -> list[Tensor]:
        """The tensors that were made under this tape and that something still refers to."""
        return list(self._made.keys())

    def forget(self) -> None:
        """Stop watching which tensors are alive."""
        self._made = WeakIdKeyDictionary()

    def place(self, tensor: Tensor) -> StoragePlace:
        """Return the place of *tensor*, which is on the meta device."""
        storage = tensor.untyped_storage()
        if storage._cdata not in self._numbers:
            self._numbers[storage._cdata] = len(self._storages)
            self._storages.append(storage)
        number = self._numbers[storage._cdata]
        return StoragePlace(number, tensor.dtype, tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset()))

    def value(self, place: StoragePlace) -> Tensor:
        """Replay the calls that *place* depends on; return a new tensor with the values that the
        tensor at *place* had at the end of the tape.
        """
        wanted = [place.storage]
        found = {place.storage}
        numbers = set[int]()
        while wanted:
            for number in self._writers[wanted.pop()]:
                numbers.add(number)
                wanted += self._entries[number].touched - found
                found |= self._entries[number].touched
        real = {number: _copied(self._constants[number]) for number in found if number in self._constants}
        generator = torch.default_generator
        before = generator.get_state()
        try:
            for number in sorted(numbers):
                self._replay(number, real)
        finally:
            generator.set_state(before)
        return _view(place, real)

    @torch.no_grad()
    def _replay(self, number: int, real: dict[int, torch.UntypedStorage]) -> None:
        entry, func = self._entries[number], self._entries[number].func
        if entry.drawn_from is not None and self._alike:
            torch.default_generator.manual_seed(number)
            func = partial(_drawn_alike, func)
        elif entry.drawn_from is not None:
            torch.default_generator.set_state(entry.drawn_from)
        args, kwargs = tree_map_only(StoragePlace, lambda place: _view(place, real), (entry.args, entry.kwargs))
        for made, output in zip(entry.made, tensors_in(func(*args, **kwargs)), strict=True):
            real.setdefault(made.storage, _laid_out(output, made).untyped_storage())

    def __enter__(self) -> Self:
        self._claims.__enter__()  # type: ignore[no-untyped-call]
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *how: Any) -> None:
        super().__exit__(*how)  # type: ignore[no-untyped-call]
        self._scratch = None
        self._claims.__exit__(*how)  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = tensors_in((args, kwargs))
        if not any(tensor.is_meta for tensor in given) and (given or not _makes_on_cpu(func, kwargs)):
            device = kwargs.get("device")
            if device is None or torch.device(device).type != "meta":
                return func(*args, **kwargs)
        if func is torch.ops.aten._local_scalar_dense.default:
            return func(self.value(self.place(given[0])))
        draws = torch.Tag.nondeterministic_seeded in func.tags
        _check(func, args, kwargs, given, draws)
        before = torch.default_generator.get_state() if draws else None
        if draws and not self._alike:  # run it once on the CPU, only to advance the generator
            drawn, named = tree_map(self._temporary, (args, kwargs))
            func(*drawn, **{**named, **_on(func, kwargs, "cpu")})
        stated = tree_map(self._place_of, (args, kwargs))
        shadows, named = tree_map(_shadow, (args, kwargs))
        result = func(*shadows, **{**named, **_on(func, kwargs, "meta")})
        outputs = tensors_in(result)
        read = {leaf.storage for leaf in tree_leaves(stated) if isinstance(leaf, StoragePlace)}
        made = [self.place(output) for output in outputs]
        for output in outputs:
            self._made[output] = None
        if func._schema.is_mutable or not all(place.storage in read for place in made):
            entry_args, entry_kwargs = stated
            entry_kwargs = {**entry_kwargs, **_on(func, kwargs, "cpu")}
            written = {place.storage for place in made} | _written(func, entry_args)
            for number in written:
                self._writers[number].append(len(self._entries))
            self._entries.append(_TapeEntry(func, entry_args, entry_kwargs, made, frozenset(read | written), before))
        return result

    def _temporary(self, leaf: Any) -> Any:
        """Return a CPU tensor like *leaf* to draw into, or *leaf* itself if it is not a tensor; a
        device becomes the CPU.

        All these tensors share one memory, which is enough since a random operator takes one
        tensor.
        """
        if not isinstance(leaf, Tensor):
            return torch.device("cpu") if isinstance(leaf, torch.device) else leaf
        extent = 1 + sum((size - 1) * stride for size, stride in zip(leaf.shape, leaf.stride(), strict=True))
        if self._scratch is None or self._scratch.nbytes < extent * leaf.element_size():
            self._scratch = torch.empty(extent * leaf.element_size(), dtype=torch.uint8)
        return torch.empty(0, dtype=leaf.dtype).set_(self._scratch.untyped_storage(), 0, leaf.shape, leaf.stride())

    def _place_of(self, leaf: Any) -> Any:
        """Return the place of *leaf*, or *leaf* itself if it is not a tensor; a device becomes the
        CPU.

        A tensor that has values is copied, and the copy is kept as a constant of the tape.
        """
        if not isinstance(leaf, Tensor):
            return torch.device("cpu") if isinstance(leaf, torch.device) else leaf
        if leaf.is_meta:
            return self.place(leaf)
        number = len(self._storages)
        self._storages.append(leaf.untyped_storage())
        self._constants[number] = _copied(leaf.untyped_storage())
        return StoragePlace(number, leaf.dtype, tuple(leaf.shape), leaf.stride(), int(leaf.storage_offset()))


def _written(func: Any, stated: Sequence[Any]) -> set[int]:
    """Return the numbers of the storages that *func* writes to according to its schema."""
    pairs = [
        (argument.alias_info, leaf)
        for argument, value in zip(func._schema.arguments, stated, strict=False)
        for leaf in tree_leaves(value)
    ]
    return {
        leaf.storage for alias, leaf in pairs if isinstance(leaf, StoragePlace) and alias is not None and alias.is_write
    }


def _makes_on_cpu(func: Any, kwargs: dict[str, Any]) -> bool:
    """Return whether *func*, which takes no tensor, makes one on the CPU."""
    makes = any(argument.name == "device" for argument in func._schema.arguments)
    return makes and (kwargs.get("device") is None or torch.device(kwargs["device"]).type == "cpu")


def _on(func: Any, kwargs: dict[str, Any], device: str) -> dict[str, Any]:
    """Return the keyword argument that makes *func* work on *device*, or {} if *func* takes no
    device or uses that of its tensor.
    """
    makes = any(argument.name == "device" for argument in func._schema.arguments)
    like = makes and kwargs.get("device") is None and any(arg.name == "self" for arg in func._schema.arguments)
    return {"device": torch.device(device)} if makes and not like else {}


def _check(func: Any, args: Sequence[Any], kwargs: dict[str, Any], given: list[Tensor], draws: bool) -> None:
    """Raise Unrecordable for a call that a replay might not repeat to the bit."""
    name = func._schema.name.partition("::")[2]
    if name in ("resize_", "set_") or "linalg" in name or name in ("geqrf", "qr", "svd"):
        raise Unrecordable(name)
    if draws and (kwargs.get("generator") is not None or len(given) > 1 or (given and name not in _IGNORES_VALUES)):
        raise Unrecordable(name)
    for argument, value in [*zip(func._schema.arguments, args, strict=False)]:
        is_written = argument.alias_info is not None and argument.alias_info.is_write
        if is_written and isinstance(value, Tensor) and not value.is_meta:
            raise Unrecordable(f"{name} of values unknown")


def _shadow(leaf: Any) -> Any:
    if isinstance(leaf, Tensor) and not leaf.is_meta:
        return torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device=_META)
    return leaf


def _view(place: StoragePlace, real: dict[int, torch.UntypedStorage]) -> Tensor:
    return torch.empty(0, dtype=place.dtype).set_(real[place.storage], place.offset, place.size, place.stride)


def _laid_out(output: Tensor, made: StoragePlace) -> Tensor:
    """Return a tensor with the values of *output* and the layout of *made*. Kernels on the CPU may
    lay out tensors differently from the meta device.
    """
    if (output.stride(), output.storage_offset()) == (made.stride, made.offset):
        return output
    extent = 1 + made.offset + sum((size - 1) * stride for size, stride in zip(made.size, made.stride, strict=True))
    whole = torch.empty(extent, dtype=made.dtype)
    whole.as_strided(made.size, made.stride, made.offset).copy_(output)
    return whole


def _drawn_alike(func: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Tensor:
    """Run the random operator *func*. If it fills a large tensor in place, make only a few draws
    and repeat them.
    """
    target = args[0] if args and isinstance(args[0], Tensor) and func.__name__.partition(".")[0].endswith("_") else None
    if target is None or target.numel() <= _DRAWN_ALIKE or not target.is_contiguous():
        return func(*args, **kwargs)
    few = func(target.new_empty(_DRAWN_ALIKE), *args[1:], **kwargs)
    flat = target.view(-1)
    whole = len(flat) // _DRAWN_ALIKE * _DRAWN_ALIKE
    flat[:whole].view(-1, _DRAWN_ALIKE).copy_(few)
    flat[whole:].copy_(few[: len(flat) - whole])
    return target


def _copied(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    copy: torch.UntypedStorage = storage.clone()  # type: ignore[no-untyped-call]
    return copy
