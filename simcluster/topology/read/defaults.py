"""Defaults for all nodes and links that lack a device, a bandwidth or a latency: given outside the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

from simcluster.documents.values import extreme
from simcluster.documents.yaml import Document, parse_value
from simcluster.errors import Problem, raise_all
from simcluster.spelling import nearest
from simcluster.topology.presets.generators import GENERATORS
from simcluster.topology.presets.links import DEVICES
from simcluster.units import UnitError, parse_bandwidth, parse_latency

DEFAULTS = "defaults"
"""The first part of overrides that give a default: {"defaults.device": "raspberry-pi-5"}."""

KEYS = ("device", "bandwidth", "latency")

_for_files: ContextVar[Mapping[str, Any]] = ContextVar("for_files", default=MappingProxyType({}))
_PARSE: Mapping[str, Callable[[object], float]] = {"bandwidth": parse_bandwidth, "latency": parse_latency}


@contextmanager
def defaults_for_files(given: Mapping[str, Any]) -> Iterator[None]:
    """Within the block, every topology that is read from a file has the defaults *given*."""
    before = _for_files.set(given)
    try:
        yield
    finally:
        _for_files.reset(before)


def as_overrides(given: Mapping[str, Any], *, of_file: bool = False) -> dict[str, Any]:
    """Return the overrides for the defaults *given*, and if *of_file* for those of `defaults_for_files`."""
    wanted = {**(_for_files.get() if of_file else {}), **{key: one for key, one in given.items() if one is not None}}
    return {f"{DEFAULTS}.{key}": value for key, value in wanted.items()}


def fill(document: Document, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Fill *document* with the defaults in *overrides*, and return the other overrides.

    A default of a generated topology replaces a setting of the generator that the document does
    not have. Raise UsageError for defaults that are wrong.
    """
    rest = {key: value for key, value in overrides.items() if key.partition(".")[0] != DEFAULTS}
    given = {
        key.partition(".")[2]: parse_value(value) if isinstance(value, str) else value
        for key, value in overrides.items()
        if key not in rest
    }
    raise_all([problem for key, value in given.items() for problem in _wrong(key, value)])
    data = document.data
    if not given or not isinstance(data, dict):
        return rest
    if isinstance(name := data.get("generator"), str) and name in GENERATORS:
        for key in given:
            data.setdefault(key, given[key])
        return rest
    nodes = data.get("nodes")
    device = given.pop("device", None)
    if device is not None and isinstance(nodes, dict):
        own = device if isinstance(device, dict) else {"device": device}
        for node, keys in nodes.items():
            keys = {} if keys is None else keys
            is_worker = isinstance(keys, dict) and keys.get("kind", "worker") == "worker"
            if is_worker and keys.keys().isdisjoint(("device", "flops")):
                nodes[node] = own | keys
    links = data["links"] if isinstance(data.get("links"), list) else []
    for place, keys in enumerate(links):
        if isinstance(keys, dict) and "type" not in keys:
            links[place] = {**keys, **{key: value for key, value in given.items() if keys.get(key) is None}}
    return rest


def _wrong(key: str, value: Any) -> list[Problem]:
    """Return the problem of the default *value* of *key*, if it is wrong."""
    if key not in KEYS:
        return [Problem(f"override {DEFAULTS}", f"unknown key {key!r}", nearest(key, KEYS))]
    if key == "device":
        if isinstance(value, dict) or (isinstance(value, str) and value in DEVICES):
            return []
        return [Problem("--device", repr(value), nearest(str(value), DEVICES))]
    try:
        wrong = extreme(_PARSE[key](value))
    except UnitError as error:
        return [Problem(f"--{key}", error.found, error.expected)]
    return [Problem(f"--{key}", repr(value), wrong)] if wrong else []
