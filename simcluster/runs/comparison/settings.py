"""The settings in which two runs differ, by the dotted keys of `--set`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from simcluster.documents.captured.source import is_captured, placeless
from simcluster.runs.flat_config import names_of


class AbsentSetting:
    """Stands for a setting that one of two runs lacks, since None is a value."""

    def __repr__(self) -> str:
        return "absent"


ABSENT: Final = AbsentSetting()


class SettingDifference(NamedTuple):
    """A dotted key of the configuration, and its values in the two runs."""

    key: str
    a: Any
    b: Any


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[SettingDifference]:
    """Return the settings that differ, in the order of *a*'s configuration, then of *b*'s.

    A setting of a shipped algorithm or workload that one run leaves out has its default there. Topologies that mean the
    same do not differ, however they are written.
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
    """Return whether two topologies are written differently, but mean the same."""
    if a == b or not isinstance(a, Mapping) or not isinstance(b, Mapping):
        return False
    from simcluster.topology import load

    return load(a) == load(b)


def _completed(config: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return *config* with the defaults of the settings that only *other* names."""
    found = dict(config)
    for kind in ("algorithm", "workload"):
        block, beyond = config.get(kind), other.get(kind)
        if isinstance(block, Mapping) and isinstance(beyond, Mapping) and (keys := beyond.keys() - block.keys()):
            defaults = _defaults(kind, block.get("name"))
            found[kind] = {**block, **{key: defaults[key] for key in beyond if key in keys and key in defaults}}
    return found


def _defaults(kind: str, name: Any) -> dict[str, Any]:
    """Return the defaults of the shipped algorithm or workload *name*."""
    shipped: Mapping[str, Callable[..., Any]]
    if kind == "algorithm":
        from simcluster.algorithms import ALGORITHMS as shipped
    else:
        from simcluster.workloads import WORKLOADS as shipped
    function = shipped.get(name) if isinstance(name, str) else None
    parameters = inspect.signature(function).parameters.values() if function is not None else ()
    return {one.name: one.default for one in parameters if one.default is not one.empty}


def _flat(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted key, leaf) for each leaf of nested mappings and lists; an empty one is a leaf. A link has its name
    in its key.
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
    """Return *value*; for captured source only what identifies it, since each run's directory has a copy."""
    if not isinstance(value, str):
        return value
    reference = value.replace("\\", "/")  # a run made on Windows may be compared elsewhere
    return placeless(reference) if is_captured(Path(reference.rpartition(":")[0])) else value
