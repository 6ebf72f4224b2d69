"""Find the settings that differ between two runs, by the dotted keys of `--set`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from simcluster.documents.captured.source import is_captured, placeless
from simcluster.runs.flat_config import names_of


class AbsentSetting:
    """A placeholder for a setting that one of two runs lacks, since None is a possible value."""

    def __repr__(self) -> str:
        return "absent"


ABSENT = AbsentSetting()


class SettingDifference(NamedTuple):
    """A dotted key of the configuration, and its values in the two runs."""

    key: str
    a: Any
    b: Any


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[SettingDifference]:
    """Return the settings that differ, in the order of *a*'s configuration, then of *b*'s.

    If one run omits a setting of a shipped algorithm or workload, the default counts. Topologies do
    not differ if they describe the same cluster in different words.
    """
    if _same_cluster(a.get("topology"), b.get("topology")):
        a, b = ({key: value for key, value in one.items() if key != "topology"} for one in (a, b))
    a, b = _completed(a, b), _completed(b, a)
    flat_a, flat_b = dict(_flat(a)), dict(_flat(b))
    keys = dict.fromkeys([*flat_a, *flat_b])
    found = [SettingDifference(key, flat_a.get(key, ABSENT), flat_b.get(key, ABSENT)) for key in keys]
    # 1, 1.0 and True are equal in Python, but as settings True and 1 differ.
    return [
        one for one in found if _named(one.a) != _named(one.b) or isinstance(one.a, bool) != isinstance(one.b, bool)
    ]


def _same_cluster(a: Any, b: Any) -> bool:
    """Return whether two different documents describe the same cluster."""
    if a == b or not isinstance(a, Mapping) or not isinstance(b, Mapping):
        return False
    from simcluster.topology import load

    return load(a) == load(b)


def _completed(config: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return *config*, completed by the defaults of settings that are only in *other*."""
    found = dict(config)
    for kind in ("algorithm", "workload"):
        block, beyond = config.get(kind), other.get(kind)
        if isinstance(block, Mapping) and isinstance(beyond, Mapping) and (keys := beyond.keys() - block.keys()):
            defaults = _defaults(kind, block.get("name"))
            found[kind] = {**block, **{key: defaults[key] for key in beyond if key in keys and key in defaults}}
    return found


def _defaults(kind: str, name: Any) -> dict[str, Any]:
    """Return setting -> default of the shipped algorithm or workload *name*."""
    shipped: Mapping[str, Callable[..., Any]]
    if kind == "algorithm":
        from simcluster.algorithms import ALGORITHMS as shipped
    else:
        from simcluster.workloads import WORKLOADS as shipped
    function = shipped.get(name) if isinstance(name, str) else None
    parameters = inspect.signature(function).parameters.values() if function is not None else ()
    return {one.name: one.default for one in parameters if one.default is not one.empty}


def _flat(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted key, leaf) for each leaf of nested mappings and lists.

    Empty mappings and lists are leaves. The key of a link has its name in place of its index.
    """
    if isinstance(value, Mapping) and value:
        for name, item in value.items():
            yield from _flat(item, f"{key}.{name}" if key else str(name))
    elif isinstance(value, (list, tuple)) and value:
        for name, item in zip(names_of(value), value, strict=True):
            yield from _flat(item, f"{key}[{name}]" if name.isdigit() else f"{key}.{name}")
    else:
        yield key, value


def _named(value: Any) -> Any:
    """Return *value*, or only the identifying part of a reference to captured source.

    Each run's directory has its own copy of the source.
    """
    if not isinstance(value, str):
        return value
    reference = value.replace("\\", "/")  # a run made on Windows may be compared elsewhere
    return placeless(reference) if is_captured(Path(reference.rpartition(":")[0])) else value
