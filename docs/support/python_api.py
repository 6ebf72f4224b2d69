"""The Python interface as Markdown: names, signatures and docstrings, read from the code."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

import simcluster

GROUPS = {  # of `simcluster`'s public names, in the order of the page
    "Write an algorithm": "Transport Replica Message Payload Cost pack ANY FREE",
    "Describe what to train, and where": "Workload Topology faults",
    "Run": "run resume replay sweep whatif verify log",
    "Read results": "Run compare load_run load_sweep save_figure",
    "Errors": "SimclusterError UsageError RunError NodeFailed PeerLost Deadlock NeverFinished",
}
CONSTRUCTED = ("Cost", "Workload")  # classes that a user calls; other objects come from functions
CONSTANTS = {
    "ANY": "Matches every source, or every tag, of a `recv`.",
    "FREE": "The cost of work that takes no time.",
}
MORE = {  # names of other modules that an algorithm, a workload or a claim needs
    "simcluster.algorithms": "steps rounds resumable Lag Facts",
    "simcluster.collectives": (
        "flatten unflatten all_reduce ring_all_reduce reduce_scatter all_gather broadcast reduce gather scatter "
        "all_to_all barrier exchange subgroup"
    ),
    "simcluster.workloads": "sgd adamw iid dirichlet",
    "simcluster.lab.verify.claim": "Claim Variant Identity Contributions",
}


def page() -> str:
    """Return the sections of the page."""
    text = "```{py:currentmodule} simcluster\n```\n"
    for heading, names in GROUPS.items():
        text += f"\n## {heading}\n\n" + "\n".join(_entry(simcluster, name) for name in names.split())
    for module, names in MORE.items():
        home = importlib.import_module(module)
        text += f"\n## {module}\n\n```{{py:currentmodule}} {module}\n```\n\n"
        text += "\n".join(_entry(home, name) for name in names.split())
    return text


def _entry(module: Any, name: str) -> str:
    value = getattr(module, name)
    if isinstance(value, type):
        kind = "exception" if issubclass(value, BaseException) else "class"
        head = name + (_signature(value) if name in CONSTRUCTED else "")
        return _block(kind, head, _doc(value), "\n".join(_members(value)))
    if callable(value):
        call = type(value).__call__ if inspect.ismodule(value) else value
        return _block("function", name + _signature(call), _doc(value))
    return _block("data", name, CONSTANTS[name])


def _members(value: type) -> Iterator[str]:
    """Yield the methods and properties of *value* that our classes define, in the order of their definition."""
    seen: set[str] = set()
    for owner in value.__mro__:
        if not owner.__module__.startswith("simcluster"):
            continue
        for name, member in vars(owner).items():
            if name.startswith("_") or name in seen:
                continue
            seen.add(name)
            found = inspect.getattr_static(value, name)
            function = getattr(found, "__func__", getattr(found, "fget", getattr(found, "func", found)))
            if not inspect.isfunction(function) or not inspect.getdoc(function):
                continue
            is_value = isinstance(member, (property, functools.cached_property))
            wrapped = isinstance(member, (classmethod, staticmethod))
            option = f":{type(member).__name__}:\n" if wrapped else ""
            if inspect.iscoroutinefunction(function):
                option += ":async:\n"
            shown = name if is_value else name + _signature(function, bound=not isinstance(member, staticmethod))
            yield _block(
                "property" if is_value else "method", shown, option + ("\n" if option else "") + _doc(function)
            )


def _signature(value: Any, *, bound: bool = False) -> str:
    """Return the parameters of *value* and the type of its result; types of parameters are in the prose."""
    signature = inspect.signature(value)
    parameters = list(signature.parameters.values())[1 if bound or _takes_self(value) else 0 :]
    shown = [one.replace(annotation=one.empty, default=_by_name(one.default)) for one in parameters]
    text = str(signature.replace(parameters=shown, return_annotation=inspect.Signature.empty))
    returns = signature.return_annotation
    return text + (f" -> {returns}" if isinstance(returns, str) and not isinstance(value, type) else "")


def _takes_self(value: Any) -> bool:
    return next(iter(inspect.signature(value).parameters), "") == "self"


def _by_name(default: Any) -> Any:
    return _Name(default.__name__) if inspect.isfunction(default) else default


class _Name:
    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


def _doc(value: Any) -> str:
    doc = inspect.getdoc(value) or ""
    if dataclasses.is_dataclass(value) and doc.startswith(f"{value.__name__}("):  # the one that dataclass writes
        return ""
    return doc


def _block(kind: str, head: str, *parts: str) -> str:
    body = "\n\n".join(part for part in parts if part)
    fence = "`" * (max((len(run) for run in re.findall(r"`{3,}", body)), default=2) + 1)
    return f"{fence}{{py:{kind}}} {head}\n{body}\n{fence}\n"
