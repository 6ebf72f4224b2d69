"""User algorithms, models and data, named by path: `my_algo.py:my_algorithm`.

Loading a file runs it as Python, with the rights of the user, like any script that the user starts.
Nothing is downloaded, and no names are guessed. A launcher sends the files that a node on another
machine needs; the node looks for a path first in the directory with these files.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import inspect
import linecache
import os
import sys
import traceback
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from simcluster.documents.captured.neighbours import travels
from simcluster.documents.captured.source import content_of, files_with, is_unwritten
from simcluster.documents.own_lines import tree_of
from simcluster.documents.settings import Function
from simcluster.errors import Problem, UsageError, raise_all
from simcluster.process.generators import seeded, turn
from simcluster.process.own_frames import is_own, origin
from simcluster.rng import seed_sequence
from simcluster.spelling import nearest

INSTEAD = {
    "time": "await asyncio.sleep(...) to wait; record(...) notes the time by itself",
    "random": "node.rng.numpy or node.rng.torch, which belong to this node alone",
    "threading": "asyncio.TaskGroup for things at once, node.compute(...) for work",
    "multiprocessing": "node.compute(...) for work",
    "concurrent": "node.compute(...) for work",
    "socket": "node.send(...) and node.recv(...)",
    "simpy": "asyncio.sleep and asyncio.timeout; a `world` that acts on the cluster uses simpy, in a file of its own",
}
"""Modules that an algorithm must not import, and what to write instead."""

MOST_PATH = 4096
MOST_NAMES = 5

_PREFIX = "simcluster_own_"

_loading: list[Path] = []
"""The files that are being loaded, the innermost last."""

_brought: list[Path] = []
"""The directory with the files that a launcher sent; [] if it sent none."""


def refuse_while_loading() -> None:
    """Raise UsageError while a file is being loaded: a run that it starts would load the file
    again, forever.
    """
    if _loading:
        found = "a run that starts whenever this file is loaded, as by every node"
        raise UsageError("own code", found, "the call below `if __name__ == '__main__':`", str(_loading[-1]))


def load_function(reference: str, folder: Path, what: str, seed: int = 0) -> tuple[Function, str]:
    """Return (the function of *reference*, the reference with its absolute path).

    *reference* is "file.py:name", relative to *folder*. While the file is loaded, the global
    generators are seeded from *seed*. Raise UsageError, with *what* as its key, if the file or the
    function does not exist, or the file raises an error.
    """
    file, separator, name = reference.rpartition(":")
    if not separator or not file or not name.isidentifier():
        raise UsageError(what, repr(reference), spelling(reference, folder))
    if len(file) > MOST_PATH:
        raise UsageError(what, f"a path of {len(file)} characters", f"at most {MOST_PATH}")
    path = folder / file
    there = brought_as(path)
    if there is None:
        there = path = path.resolve()
    if there.suffix != ".py" or not (is_unwritten(there) or os.path.isfile(there)):
        raise UsageError(what, repr(reference), f"a file at {path}, whose name ends in .py")
    module = _module_of(there, seed)
    function = getattr(module, name, None)
    if not callable(function):
        functions = [key for key, value in vars(module).items() if inspect.isfunction(value)]
        raise UsageError(what, repr(name), f"a function of {path}: {nearest(name, functions)}")
    return function, f"{path}:{name}"


def spelling(reference: str, folder: Path = Path(), *, is_async: bool = True) -> str:
    """Return the expected form of a reference, "file.py:function".

    If *reference* is a file, name its first functions instead, async ones if *is_async*.
    """
    path = folder / reference
    body = tree_of(str(path)).body if path.suffix == ".py" and path.is_file() else []
    kind = ast.AsyncFunctionDef if is_async else ast.FunctionDef
    names = [one.name for one in body if isinstance(one, kind) and not one.name.startswith("_")]
    return " or ".join(f"{reference}:{name}" for name in names[:MOST_NAMES]) or "file.py:function"


def calling(function: Function, step: Callable[[], Any], expected: str) -> Any:
    """Return the result of *step*, which calls *function* or its result.

    Any error becomes a UsageError with the line in the function's file, and with *expected*.
    """
    try:
        return step()
    except UsageError:
        raise
    except (Exception, SystemExit) as error:
        named = inspect.unwrap(function.func if isinstance(function, partial) else function)
        file = inspect.getsourcefile(named) if inspect.isroutine(named) or inspect.isclass(named) else None
        line = _line_in(error, Path(file)) if file is not None else None
        name = getattr(named, "__name__", type(named).__name__)
        raise UsageError(name, _said(error, file, line), expected, *origin(file, line)) from error


def catch_alls(function: Function, what: str) -> list[Problem]:
    """Return a problem for each catch-all argument, which could not be validated or listed."""
    found, expected = f"{function.__name__} with the argument", "each setting by its name: *, interval: int = 10, ..."
    return [
        Problem(what, f"{found} {parameter}", expected, inspect.getsourcefile(function))
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]


def check_algorithm(function: Function, what: str) -> None:
    """Raise UsageError, with every wrong line, unless all backends can run *function*."""
    problems = []
    file = inspect.getsourcefile(function)
    if not inspect.iscoroutinefunction(function):
        code = getattr(inspect.unwrap(function), "__code__", None)
        line = code.co_firstlineno if code is not None else None
        problems.append(Problem(what, f"{function.__name__}", "an `async def` function", *origin(file, line)))
    problems += catch_alls(function, what)
    positional = [p for p in inspect.signature(function).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    if len(positional) != 2:
        found = f"{function.__name__} with {len(positional)} positional arguments"
        problems.append(Problem(what, found, "(node, replica, *, settings...)", file))
    for root, *place in imports_of(content_of(Path(file))) if file is not None else ():
        if root in INSTEAD:
            problems.append(Problem("import", root, INSTEAD[root], file, *place))
    raise_all(problems)


@lru_cache(maxsize=256)
def imports_of(source: bytes) -> list[tuple[str, int, int]]:
    """Return (top-level module, line, column) of each absolute import in *source*."""
    found = []
    for statement in ast.walk(ast.parse(source)):
        if isinstance(statement, ast.Import):
            modules = [alias.name for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
            modules = [statement.module]
        else:
            continue
        found += [(module.partition(".")[0], statement.lineno, statement.col_offset + 1) for module in modules]
    return found


def load_again(path: Path, seed: int) -> ModuleType:
    """Return a second module from *path*, which shares no state with the one loaded before."""
    return _loaded(path, hashlib.sha256(content_of(path)).hexdigest(), seed)[0]


class _Loader(SourceFileLoader):
    """Python's loader, which also loads captured sources that are not written to a file yet."""

    def get_data(self, path: str) -> bytes:
        return content_of(Path(path)) if is_unwritten(Path(path)) else super().get_data(path)

    def get_code(self, fullname: str) -> CodeType | None:
        if is_unwritten(Path(self.path)):
            return self.source_to_code(self.get_data(self.path), self.path)
        return super().get_code(fullname)


_known: dict[tuple[Path, str, int | None], ModuleType] = {}
"""(path, digest of the source, seed) -> module; the seed is None if loading draws no numbers."""


def _module_of(path: Path, seed: int) -> ModuleType:
    """Return the module at *path*.

    It is loaded once for each content and, if it draws random numbers, each *seed*.
    """
    digest = hashlib.sha256(content_of(path)).hexdigest()
    known = _known.get((path, digest, None)) or _known.get((path, digest, seed))
    if known is None:
        # The module was loaded for another seed, as were the modules that it imported: import those
        # again, too.
        if any(key[:2] == (path, digest) for key in _known):
            for name in modules_beside(path):
                if not name.startswith(_PREFIX):
                    del sys.modules[name]
        known, draws = _loaded(path, digest, seed)
        _known[path, digest, seed if draws else None] = known
    return known


def modules_beside(path: Path) -> dict[str, ModuleType]:
    """Return name -> module for the loaded user modules in the directory of *path* or below."""
    found = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and name != "__main__" and is_own(file) and Path(file).is_relative_to(path.parent):
            found[name] = module
    return found


def _loaded(path: Path, digest: str, seed: int) -> tuple[ModuleType, bool]:
    """Execute the file at *path*; return the module, and whether it drew global random numbers."""
    with turn, seeded(seed_sequence(seed, "module", path.name)) as have_drawn:
        module = _executed(path, digest)
        return module, have_drawn()


def _executed(path: Path, digest: str) -> ModuleType:
    name = f"{_PREFIX}{path.stem}_{digest[:12]}"
    spec = importlib.util.spec_from_file_location(name, path, loader=_Loader(name, str(path)))
    assert spec is not None, f"{path} has a loader"
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # dataclasses and pydantic look up the module of a class in sys.modules.
    sys.modules[spec.name] = module
    folder = str(path.parent)
    # As in a script, the file can import modules from its directory.
    sys.path.insert(0, folder)
    _loading.append(path)
    try:
        spec.loader.exec_module(module)
    except UsageError:
        del sys.modules[spec.name]
        raise
    except (Exception, SystemExit) as error:
        del sys.modules[spec.name]
        line = error.lineno if isinstance(error, SyntaxError) else _line_in(error, path)
        raise UsageError("own code", _said(error, str(path), line), "a file that runs", str(path), line) from error
    finally:
        _loading.pop()
        sys.path.remove(folder)
    return module


def _said(error: BaseException, file: str | None, line: int | None) -> str:
    """Return the type and message of *error*, and the source of *line* in *file* if known."""
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    linecache.checkcache(file)
    source = linecache.getline(file, line).strip() if file is not None and line is not None else ""
    return f"{type(error).__name__}: {message}{f' in `{source}`' if source else ''}"


def _line_in(error: BaseException, path: Path) -> int | None:
    """Return the line of the innermost frame of *error* that is in the file *path*, or None."""
    frames = traceback.walk_tb(error.__traceback__)
    return next((line for frame, line in reversed(list(frames)) if frame.f_code.co_filename == str(path)), None)


def look_below(folder: Path) -> None:
    """From now on, look for user code first below *folder*, where a launcher put it."""
    _brought[:] = [folder]


def place_below(folder: Path, path: Path) -> Path:
    """Return the path below *folder* for a file with the absolute *path*.

    Raise ValueError if *path* is relative or contains "..": it could lead out of *folder*.
    """
    if not path.is_absolute() or ".." in path.parts:
        raise ValueError(f"{path} is not the absolute path of a file")
    return folder / path.relative_to(path.anchor)


def brought_as(path: Path) -> Path | None:
    """Return the path at which a launcher put the file *path*; None if it was not sent."""
    places = [place_below(folder, path) for folder in _brought if path.is_absolute() and ".." not in path.parts]
    return next((place for place in places if os.path.isfile(place)), None)


def files_of(references: Iterable[str]) -> tuple[Path, ...]:
    """Return the files of *references*, and of the modules next to them that they import.

    Each reference is "/file.py:name" and has been loaded. Other files in these directories may be
    private, so they are left out, as are installed packages.
    """
    found: dict[Path, None] = {}
    for reference in references:
        path = Path(reference.rpartition(":")[0])
        beside = [Path(str(module.__file__)) for module in modules_beside(path).values() if travels(module)]
        found |= dict.fromkeys([path, *files_with(path), *sorted(file for file in beside if file.is_file())])
    return tuple(found)
