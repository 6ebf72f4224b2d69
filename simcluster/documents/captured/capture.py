"""Capture a function from memory, with everything that it uses, as a module for every node."""

from __future__ import annotations
import __future__

import importlib.util
import inspect
import sys
from collections.abc import Mapping
from functools import partial
from types import FunctionType, ModuleType
from typing import Any

from simcluster.documents.captured.definition import Definition, definition_of
from simcluster.documents.captured.neighbours import neighbours_of, travels
from simcluster.documents.captured.source import MOST_TENSOR_BYTES, TENSORS, SourceModule
from simcluster.documents.captured.values import UnwritableValue, expression, importable, is_reachable
from simcluster.documents.settings import Function
from simcluster.errors import UsageError

HEAD = '"""Source that simcluster captured from {origin}, for every node to load."""\n'
FUTURE = "from __future__ import annotations\n"
STORED = "from simcluster.documents.captured.source import stored\n\n_tensors = stored(__file__)\n"

HOW = "what every process can make: imports, numbers, text, tensors, functions. Make it inside a function"


def capture(given: Function, what: str) -> SourceModule:
    """Return the source of *given*, a function or a `functools.partial` of one.

    *what* is the experiment's block for the function: "algorithm" or "workload". Raise UsageError,
    naming the object, if the function uses an object without source.
    """
    function, settings = unwrapped(given, what)
    return _Capture(what).source_of(function, settings)


def capture_value(value: Any, what: str) -> SourceModule:
    """Return the source of a function called *what* that returns an object equal to *value*."""
    return _Capture(what).source_of_value(value)


def unwrapped(given: Function, what: str) -> tuple[Function, dict[str, Any]]:
    """Return (the function within the nested partials of *given*, the keywords of all partials).

    Raise UsageError if a partial has positional arguments.
    """
    settings: dict[str, Any] = {}
    while isinstance(given, partial):
        if given.args:
            found = f"a partial with the positional arguments {given.args!r}"
            raise UsageError(what, found, "only keywords: functools.partial(f, interval=4)")
        settings = {**given.keywords, **settings}
        given = given.func
    return given, settings


class _Capture:
    """The module that is being written for one captured function or value."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._imports: dict[str, None] = {}
        self._parts: list[str] = []
        self._taken: dict[str, Any] = {}
        self._made: dict[int, tuple[str, Any]] = {}
        self._tensors: dict[int, tuple[int, Any]] = {}
        self._origins: dict[int, tuple[int, Definition]] = {}
        self._modules: dict[str, ModuleType] = {}
        self._inside: list[str] = [what]
        self._future = False

    def source_of(self, function: Function, settings: Mapping[str, Any]) -> SourceModule:
        name = getattr(function, "__name__", "")
        if not isinstance(function, FunctionType) or not name.isidentifier():
            found = "a lambda" if name == "<lambda>" else f"{function!r:.80}"
            by = "async def" if self._what == "algorithm" else "def"
            raise UsageError(self._what, found, f"a function with a name, by `{by}`, or a partial of one")
        made = self.value(function, name)
        if made != name:
            self._parts.append(f"{name} = {made}\n")
        return self._source(name, function.__code__.co_filename, settings)

    def source_of_value(self, value: Any) -> SourceModule:
        made = self.value(value, self._what)
        self._parts.append(f"def {self._what}():\n    return {made}\n")
        return self._source(self._what, "", {})

    def value(self, value: Any, name: str) -> str:
        """Return an expression for *value*, and write the definitions that the expression uses.

        *name* is the name of *value* where it was found, for errors.
        """
        self._inside.append(name)
        try:
            return expression(value, self)
        except UnwritableValue as refused:
            place = " of ".join(reversed([part for part in self._inside[1:] if part != self._what]))
            how = f"{HOW}: def make(): return Workload(...)" if self._what == "workload" else HOW
            raise UsageError(self._what, f"{place}, {refused}", how) from None
        finally:
            self._inside.pop()

    def tensor(self, tensor: Any) -> str:
        """Return the expression for *tensor*; store its values in a file next to the source."""
        number, _ = self._tensors.setdefault(id(tensor), (len(self._tensors), tensor))
        return f"_tensors['{number}']"

    def instance(self, value: Any) -> str:
        """Return the name of a copy of *value*; write lines to make it from its class and
        attributes.

        The object is made before its attributes, since they may refer to it.
        """
        if id(value) not in self._made:
            kind = self.value(type(value), type(value).__name__)
            name = f"_made_{len(self._made)}"
            self._made[id(value)] = (name, value)
            self._parts.append(f"{name} = object.__new__({kind})\n")
            attributes = ", ".join(f"{key!r}: {self.value(part, key)}" for key, part in vars(value).items())
            self._parts.append(f"{name}.__dict__.update({{{attributes}}})\n")
        return self._made[id(value)][0]

    def module(self, module: ModuleType, *parts: str) -> str:
        """Write an import of *module*, and return the expression for its attribute *parts*."""
        name = self._travels(module)
        root = name.partition(".")[0]
        self._take(root, sys.modules[root])
        self._imports[f"import {name}"] = None
        if not is_reachable(module):
            return f"__import__('sys').modules[{name!r}]" + "".join(f".{part}" for part in parts)
        return ".".join((name, *parts))

    def _travels(self, module: ModuleType) -> str:
        """Return the name of *module* in an import; note the module if its file must travel."""
        name = module.__name__
        if name == "__main__" or sys.modules.get(name) is not module:
            raise UnwritableValue("a module that cannot be imported")
        if travels(module):
            self._modules[name] = module
        return name

    def defined(self, what: Any) -> str:
        """Write the function or class *what* after everything that it uses; return its name."""
        if id(what) in self._made:
            return self._made[id(what)][0]
        base = inspect.unwrap(what) if callable(getattr(what, "__wrapped__", None)) else what
        found = definition_of(base)
        if found is None:
            raise UnwritableValue("a function or class with unknown source; write it in a notebook's cell or a file")
        where = vars(sys.modules[what.__module__]) if isinstance(what, type) else base.__globals__
        closed = {} if isinstance(what, type) else _closed(base)
        is_plain = found.is_top and not closed and where.get(what.__name__) is what
        name = what.__name__ if is_plain else f"_made_{len(self._made)}"
        self._made[id(what)] = (name, what)
        if is_plain:
            self._take(name, what)
        if not isinstance(what, type):
            self._future |= bool(base.__code__.co_flags & __future__.annotations.compiler_flag)
        self._name(found, {key: value for key, value in where.items() if key not in closed})
        part, before = (f"{found.text}\n", 0) if is_plain else self._maker(name, found, closed)
        self._origins[len(self._parts)] = (before, found)
        self._parts.append(part)
        return name

    def _maker(self, name: str, found: Definition, closed: Mapping[str, Any]) -> tuple[str, int]:
        """Return (text, the number of its lines before the definition *found*).

        The text defines a function that returns *found* with the values *closed* in its closure. It
        assigns the result to *name*.
        """
        inner = getattr(found.node, "name", None)
        lines = [f"{key} = {self.value(value, key)}" for key, value in closed.items() if key != inner]
        before = 1 + len(lines)
        lines += [f"return ({found.text})"] if inner is None else [*found.text.splitlines(), f"return {inner}"]
        body = "\n".join(f"    {line}" if line else "" for line in lines)
        return f"def _make{name}():\n{body}\n\n\n{name} = _make{name}()\n", before

    def _name(self, found: Definition, where: Mapping[str, Any]) -> None:
        """Write every name that *found* uses from *where*; import the modules of dotted names."""
        for name in filter(where.__contains__, found.names()):
            value, is_known = where[name], name in self._taken
            self._take(name, value)
            if is_known:
                continue
            if isinstance(value, ModuleType):
                dotted = self.value(value, name)
                if dotted != name:
                    self._imports[f"import {dotted} as {name}"] = None
            elif (place := importable(value)) is not None and "." not in place[1]:
                as_name = "" if place[1] == name else f" as {name}"
                self._imports[f"from {self._travels(place[0])} import {place[1]}{as_name}"] = None
            elif (made := self.value(value, name)) != name:
                self._parts.append(f"{name} = {made}\n")
        for dotted in found.chains():
            root, *rest = dotted.split(".")
            if isinstance(where.get(root), ModuleType) and where[root].__name__ == root:
                for end in range(1, len(rest) + 1):
                    if (below := sys.modules.get(".".join((root, *rest[:end])))) is not None:
                        self.module(below)

    def _take(self, name: str, value: Any) -> None:
        if self._taken.setdefault(name, value) is not value:
            raise UsageError(self._what, f"two things called {name}", "a name for each")

    def _source(self, name: str, origin: str, settings: Mapping[str, Any]) -> SourceModule:
        files = neighbours_of(self._modules.values())
        stem = name if importlib.util.find_spec(name) is None and f"{name}.py" not in files else f"own_{name}"
        text = HEAD.format(origin="a notebook or a prompt" if not origin.endswith(".py") else "the main script")
        text += FUTURE if self._future else ""
        text += "\n" + "".join(f"{line}\n" for line in self._imports)
        if self._tensors:
            text += STORED
            files[TENSORS] = self._stored()
        origins = []
        for number, part in enumerate(self._parts):
            text += "\n\n"
            if number in self._origins:
                before, found = self._origins[number]
                first = text.count("\n") + 1 + before
                origins.append((first, first + found.text.count("\n"), found.file, found.line))
            text += part
        return SourceModule(name, f"{stem}.py", {f"{stem}.py": text.encode(), **files}, settings, origins)

    def _stored(self) -> bytes:
        import safetensors.torch

        tensors = {str(number): tensor.detach().cpu().contiguous().clone() for number, tensor in self._tensors.values()}
        size = sum(tensor.nbytes for tensor in tensors.values())
        if size > MOST_TENSOR_BYTES:
            expected = f"at most {MOST_TENSOR_BYTES >> 20} MB; let a function read or make them: workload=make_workload"
            raise UsageError(self._what, f"{size >> 20} MB of tensors to store with the run", expected)
        return bytes(safetensors.torch.save(tensors))


def _closed(function: Any) -> dict[str, Any]:
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # a variable that has no value yet
            continue
    return found
