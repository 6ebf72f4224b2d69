"""Convert Python objects to values of an experiment: functions, workloads, topologies, graphs."""

from __future__ import annotations

import copy
import inspect
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import networkx

from simcluster.algorithms import ALGORITHMS
from simcluster.documents.captured import SourceModule, capture, capture_value, held, unwrapped
from simcluster.errors import UsageError
from simcluster.topology import Topology
from simcluster.topology.read.foreign import from_graph
from simcluster.workloads import WORKLOADS, Workload

AnyTopology: TypeAlias = "str | Path | Mapping[str, Any] | Topology | networkx.Graph[Any]"
AnyAlgorithm: TypeAlias = "str | Callable[..., Any] | Mapping[str, Any]"
AnyWorkload: TypeAlias = "str | Callable[..., Any] | Mapping[str, Any] | Workload"
AnyExperiment: TypeAlias = "str | Path | Mapping[str, Any]"
AnyScript: TypeAlias = "str | Path | Mapping[str, Any]"

KNOWN: Mapping[str, Mapping[str, Callable[..., Any]]] = {"algorithm": ALGORITHMS, "workload": WORKLOADS, "world": {}}


def topology_value(given: AnyTopology) -> Any:
    """Return the value of an experiment's key `topology` for *given*."""
    if isinstance(given, Topology):
        return copy.deepcopy(dict(given.document))
    return from_graph(given) if isinstance(given, networkx.Graph) else given


def block_of(key: str, given: Any) -> Any:
    """Return the experiment's block *key*, "algorithm", "workload" or "world", for *given*.

    The block has a `name` or a `path`, and settings. A string is a name, or "file.py:function"
    relative to the working directory. A function from a file becomes such a path. A function from a
    cell, the prompt or the main script becomes a captured source.
    """
    if key == "world" and isinstance(given, (list, tuple)):
        return [block_of(key, each) for each in given]
    if key == "world" and inspect.isgenerator(given):
        raise UsageError("world", "a generator", "the function itself: world=storm, without a call")
    if isinstance(given, str):
        if ":" not in given:
            return {"name": given}
        file, _, name = given.rpartition(":")
        return {"path": f"{Path(file).absolute()}:{name}"}
    if isinstance(given, Workload) and key == "workload":
        try:
            return capture_value(given.in_memory(), key).block
        except UsageError as error:  # real nodes report this error
            return held(given, key, error).block
    if isinstance(given, Mapping):
        block = dict(given)
        return block_of(key, block.pop("path")) | block if callable(given.get("path")) else block
    return _of_function(key, given) if callable(given) else given


def script_keys(script: AnyScript | None, args: Sequence[object]) -> dict[str, Any]:
    """Return the experiment's key `script` for a program with *args*; empty for None.

    Raise UsageError for arguments without a program.
    """
    if script is None:
        if args:
            raise UsageError("args", repr(args), "script=..., whose arguments they are")
        return {}
    block = dict(script) if isinstance(script, Mapping) else {"file": str(Path(script).absolute())}
    return {"script": {**block, "args": list(args)} if args else block}


def experiment_value(given: Any) -> Any:
    """Return a copy of an experiment's mapping with plain values; other objects unchanged."""
    if not isinstance(given, Mapping):
        return given
    return {key: value_at(key, value) for key, value in given.items()}


def value_at(key: str, value: Any) -> Any:
    """Return *value*, given for the dotted *key* of an experiment, as a plain value."""
    if key == "topology":
        return copy.deepcopy(topology_value(value))
    if key in KNOWN and not isinstance(value, str):
        return copy.deepcopy(block_of(key, value))
    return copy.deepcopy(value)


def label_of(value: Any) -> Any:
    """Return a short name for a block with a captured source; any other *value* unchanged."""
    source = value.get("path") if isinstance(value, Mapping) else None
    if not isinstance(source, SourceModule):
        return value
    settings = ", ".join(f"{name}={setting}" for name, setting in source.settings.items())
    return f"{source.name}({settings})" if settings else source.name


def _of_function(key: str, given: Callable[..., Any]) -> dict[str, Any]:
    function, settings = unwrapped(given, key)
    for name, value in settings.items():
        try:
            json.dumps(value)
        except (TypeError, ValueError):
            expected = "a number, text, a list or a mapping: settings are written to config.yaml"
            raise UsageError(f"{key}.{name}", f"{value!r:.80}", expected) from None
    shipped = next((name for name, known in KNOWN[key].items() if known is function), None)
    if shipped is not None:
        return {"name": shipped, **settings}
    if (file := _file_of(function)) is not None:
        return {"path": f"{file}:{function.__name__}", **settings}
    return capture(given, key).block


def _file_of(function: Callable[..., Any]) -> Path | None:
    """Return the file that defines *function* at its top level, else None.

    Return None for the main script, too: loading it would run it.
    """
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    if module is None or module.__name__ == "__main__" or not inspect.isfunction(function):
        return None
    file = Path(getattr(module, "__file__", None) or "")
    is_there = file.suffix == ".py" and file.is_file()
    return file.resolve() if is_there and getattr(module, function.__name__, None) is function else None
