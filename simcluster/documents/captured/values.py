"""Write the values that a captured function uses as Python expressions."""

from __future__ import annotations

import collections
import dataclasses
import enum
import math
import sys
import types
import typing
from functools import partial
from pathlib import PurePath
from typing import Any, Protocol

MOST_CHARACTERS = 1 << 20
"""Limit on the characters of one value's expression, to keep the source readable."""


class UnwritableValue(Exception):
    """Raised for a value that no expression can make again."""


class Writer(Protocol):
    """Write the definitions that an expression refers to, and return the expression's parts."""

    def value(self, value: Any, name: str, /) -> str: ...
    def tensor(self, tensor: Any, /) -> str: ...
    def module(self, module: types.ModuleType, /, *parts: str) -> str: ...
    def defined(self, what: Any, /) -> str: ...
    def instance(self, value: Any, /) -> str: ...


def expression(value: Any, writer: Writer) -> str:
    """Return an expression that makes *value* again. Raise UnwritableValue if there is none."""
    if (text := _plain(value, writer)) is not None:
        if len(text) > MOST_CHARACTERS:
            raise UnwritableValue(f"a {type(value).__name__} of {len(text):,} characters")
        return text
    torch = sys.modules.get("torch")
    if torch is not None:
        if isinstance(value, torch.nn.Parameter):
            return f"{writer.module(torch.nn, 'Parameter')}({writer.tensor(value)}, {value.requires_grad})"
        if isinstance(value, torch.Tensor):
            return writer.tensor(value)
        if isinstance(value, (torch.dtype, torch.device)):
            writer.module(torch)
            return str(value) if isinstance(value, torch.dtype) else f"torch.device({str(value)!r})"
        if isinstance(value, torch.utils.data.DataLoader):
            parts = [writer.value(value.dataset, "dataset"), f"batch_size={value.batch_size}"]
            parts.append(f"collate_fn={writer.value(value.collate_fn, 'collate_fn')}")
            return f"{writer.module(torch.utils.data, 'DataLoader')}({', '.join(parts)})"
        if isinstance(value, torch.nn.Module) and any(True for _ in value.parameters()):
            # In the simulator, all ranks would share the module and its weights.
            raise UnwritableValue(f"an instance of {type(value).__name__} with weights")
    numpy = sys.modules["numpy"]
    if isinstance(value, numpy.ndarray) and torch is not None and value.dtype.kind in "biuf":
        return f"{writer.tensor(torch.from_numpy(value))}.numpy()"
    return _object(value, writer)


def _plain(value: Any, writer: Writer) -> str | None:
    """Return the expression if *value* is a constant or a container, else None."""
    kind = type(value)
    if kind in (int, str, bytes, bool, complex, types.NoneType, types.EllipsisType, range, slice):
        return repr(value)
    if kind is float:
        return repr(value) if math.isfinite(value) else f"float({str(value)!r})"
    if kind in (list, tuple, set, frozenset):
        ordered = sorted(value, key=repr) if kind in (set, frozenset) else value
        parts = [writer.value(part, f"[{index}]") for index, part in enumerate(ordered)]
        inner = ", ".join(parts)
        if kind is tuple:
            return f"({inner},)" if len(parts) == 1 else f"({inner})"
        return f"[{inner}]" if kind is list else f"{kind.__name__}([{inner}])"
    if kind is dict:
        pairs = (f"{writer.value(key, 'a key')}: {writer.value(part, repr(key))}" for key, part in value.items())
        return f"{{{', '.join(pairs)}}}"
    return None


def _object(value: Any, writer: Writer) -> str:
    if isinstance(value, types.ModuleType):
        return writer.module(value)
    if isinstance(value, partial):
        args = [writer.value(part, f"argument {index}") for index, part in enumerate(value.args)]
        args += [f"{key}={writer.value(part, key)}" for key, part in value.keywords.items()]
        made = ", ".join([writer.value(value.func, "the function"), *args])
        return f"{writer.module(sys.modules['functools'], 'partial')}({made})"
    if (place := importable(value)) is not None:
        return writer.module(place[0], *place[1].split("."))
    if isinstance(value, (types.FunctionType, type)):
        return writer.defined(value)
    if typing.get_origin(value) is not None and "<" not in repr(value):
        return _typing(value, writer)
    if isinstance(value, enum.Enum):
        return f"{writer.value(type(value), type(value).__name__)}.{value.name}"
    if isinstance(value, PurePath):
        return f"{writer.module(sys.modules['pathlib'], type(value).__name__)}({str(value)!r})"
    if isinstance(value, sys.modules["numpy"].generic) and value.dtype.kind in "biuf":
        return f"{writer.module(sys.modules['numpy'], value.dtype.type.__name__)}({value.item()!r})"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _fields(value, writer)
    if isinstance(value, collections.OrderedDict):
        return f"{writer.module(collections, 'OrderedDict')}({writer.value(dict(value), 'entries')})"
    new = getattr(type(value), "__new__", None)
    if new is getattr(object, "__new__", None) and isinstance(getattr(value, "__dict__", None), dict):
        return writer.instance(value)
    raise UnwritableValue(
        f"a {type(value).__name__}" if not isinstance(value, types.MethodType) else f"a method, {value!r:.80}"
    )


def _typing(value: Any, writer: Writer) -> str:
    """Return the expression of a parametrised type, such as Literal["a", "b"]."""
    origin, args = typing.get_origin(value), typing.get_args(value)
    if origin is typing.Literal:
        return f"{writer.module(typing, 'Literal')}[{', '.join(map(repr, args))}]"
    if origin in (typing.Union, types.UnionType):
        return f"{writer.module(typing, 'Union')}[{', '.join(writer.value(part, 'a type') for part in args)}]"
    if origin is typing.Annotated or not isinstance(origin, type) or any(isinstance(part, list) for part in args):
        raise UnwritableValue(f"the type {value!r:.80}")
    inner = ", ".join(writer.value(part, "a type") for part in args)
    return f"{writer.value(origin, origin.__name__)}[{inner}]"


def _fields(value: Any, writer: Writer) -> str:
    """Return a constructor call for the dataclass *value*; omit fields that have their defaults."""
    given = []
    for field in dataclasses.fields(value):
        own = getattr(value, field.name)
        if field.init and own is not field.default:
            given.append(f"{field.name}={writer.value(own, field.name)}")
    return f"{writer.value(type(value), type(value).__name__)}({', '.join(given)})"


def importable(value: Any) -> tuple[types.ModuleType, str] | None:
    """Return (module, dotted name in it) from which *value* can be imported; None if there is none.

    If a package decorates an object of its module, only the package has the decorated *value*. So
    packages above the defining module are tried, too.
    """
    home, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(home, str) or not isinstance(name, str) or home == "__main__" or "<" in name:
        return None
    parts = home.split(".")
    places = [sys.modules.get(".".join(parts[:end])) for end in range(len(parts), 0, -1)]
    # Prefer reachable modules: torch.optim deletes its attribute sgd, the module that defines SGD.
    for module in sorted(filter(None, places), key=lambda module: not is_reachable(module)):
        found: Any = module
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is value and getattr(module, "__file__", "") is not None:
            return module, name
    return None


def is_reachable(module: types.ModuleType) -> bool:
    """Return whether the dotted name of *module* is a valid expression after its import.

    Some packages delete the attributes for their modules.
    """
    root, *below = module.__name__.split(".")
    found: Any = sys.modules.get(root)
    for part in below:
        found = getattr(found, part, None)
    return found is module
