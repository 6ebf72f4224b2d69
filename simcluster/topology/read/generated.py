"""Expand a topology that names a generator instead of nodes: {generator: star, workers: 8}."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, get_args

from simcluster.documents.values import extreme
from simcluster.documents.yaml import Document, parse_value
from simcluster.errors import Problem, UsageError, raise_all
from simcluster.spelling import nearest
from simcluster.topology.model.link import Duplex
from simcluster.topology.model.model import Topology
from simcluster.topology.presets.generators import GENERATORS, MOST_WORKERS, Recipe
from simcluster.topology.read.alike import alike
from simcluster.topology.read.network import NETWORK_KEYS
from simcluster.units import UnitError, parse_bandwidth, parse_latency

GENERATOR = "generator"

OF_ALL = ("name", "description", "launch", *NETWORK_KEYS)
"""The keys that every topology may have, whether generated or not."""


def settings_of_generators() -> list[str]:
    """Return the names of the settings of all generators."""
    return list(dict.fromkeys(key for make in GENERATORS.values() for key in inspect.signature(make).parameters))


def expand(
    document: Document, overrides: Mapping[str, Any], check: Callable[[dict[str, Any]], Topology]
) -> Topology | tuple[Document, dict[str, Any]]:
    """Return the topology of *document*, which names a generator.

    If *overrides* change more than settings of the generator, or if all nodes must be read one by
    one, return (document with nodes and links, remaining overrides) instead. *check* reads a
    document with nodes and links. Raise UsageError with every wrong setting.
    """
    rest, settings_of_any = {}, settings_of_generators()
    for key, value in overrides.items():
        path = tuple(key.split("."))
        if path[0] in (GENERATOR, *settings_of_any):
            document.override(path, parse_value(value) if isinstance(value, str) else value, f"override {key}")
        else:
            rest[key] = value
    data = document.data
    name = data[GENERATOR]
    make = GENERATORS.get(name) if isinstance(name, str) else None
    if make is None:
        expected = f"the name of a generator: {nearest(str(name), GENERATORS)}"
        raise UsageError(document.problem((GENERATOR,), expected=expected))
    settings = inspect.signature(make).parameters
    raise_all([*_check(document, settings), *_unknown(rest, settings)])
    try:
        given = {key: data[key] for key in data if data[key] is not None and key not in (GENERATOR, *OF_ALL)}
        recipe = Recipe(name, given, {key: data[key] for key in OF_ALL if data.get(key) is not None})
        shape = recipe.shape()
        # All nodes have the same device. Check the first node alone, so that a wrong device is
        # reported only once.
        check({"nodes": {first: dict(keys) for first, keys in islice(shape.nodes.items(), 1)}})
    except UsageError as error:
        raise UsageError(list(dict.fromkeys(_here(document, problem) for problem in error.problems))) from None
    if not rest and (topology := alike(shape, check)) is not None:
        return replace(topology, source=recipe)
    return Document(shape.document(), document.file), rest


def _check(document: Document, settings: Mapping[str, inspect.Parameter]) -> list[Problem]:
    """Return the problems of the settings that are visible without building the topology."""
    known, problems = (GENERATOR, *OF_ALL, *settings), []
    for key in [key for key in document.data if key not in known]:
        found, expected = "unknown key", nearest(key, known)
        if makers := [name for name, make in GENERATORS.items() if key in inspect.signature(make).parameters]:
            found, expected = f"a setting of {', '.join(makers)}", f"one of this generator: {', '.join(settings)}"
        problems.append(document.problem((key,), found=found, expected=expected, at_key=True))
    for key, parameter in settings.items():
        value = document.data.get(key)
        if value is None:
            if parameter.default is parameter.empty:
                problems.append(document.problem((key,), expected=f"a whole number: the number of {key}"))
        elif wrong := _wrong(key, value, parameter):
            problems.append(document.problem((key,), expected=wrong))
    return problems


def _unknown(overrides: Mapping[str, Any], settings: Iterable[str]) -> list[Problem]:
    """Return a problem for each of *overrides* with a key that neither generator nor file has."""
    known, firsts = (GENERATOR, *settings, *OF_ALL, "nodes", "links"), {key: key.split(".")[0] for key in overrides}
    return [
        Problem(f"override {key}", f"unknown key {first!r}", nearest(first, known))
        for key, first in firsts.items()
        if first not in known
    ]


def _wrong(key: str, value: Any, parameter: inspect.Parameter) -> str:
    """Return the expected values of the setting *key* if *value* is wrong, else ""."""
    if parameter.default is parameter.empty:
        fits = type(value) is int and abs(value) <= MOST_WORKERS
        return "" if fits else f"a whole number of at most {MOST_WORKERS}"
    if key == "duplex":
        kinds = get_args(Duplex)
        return "" if value in kinds else " or ".join(kinds)
    if key == "device":
        return "" if isinstance(value, (str, dict)) else "a preset's name, or the keys of a node"
    try:
        return extreme((parse_bandwidth if key.endswith("bandwidth") else parse_latency)(value))
    except UnitError as error:
        return error.expected


def _here(document: Document, problem: Problem) -> Problem:
    if problem.key.startswith("nodes."):
        below = problem.key.split(".")[2:]
        path = ("device", *below) if isinstance(document.data.get("device"), dict) else ("device",)
        return document.problem(path, found=problem.found, expected=problem.expected)
    found, _, expected = problem.expected.partition(": ")
    return document.problem((GENERATOR,), found=f"{document.data[GENERATOR]} with {found}", expected=expected)
