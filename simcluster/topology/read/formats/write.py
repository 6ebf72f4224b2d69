"""Write a cluster that was read from a file of another tool as YAML, with the origin of every number."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from simcluster.documents.yaml import Document
from simcluster.documents.yaml_build import resolve
from simcluster.topology.read.defaults import as_overrides, fill
from simcluster.topology.read.formats.cluster import ForeignCluster, printable


def imported_text(found: ForeignCluster, path: Path, folder: Path) -> tuple[str, Document]:
    """Return (YAML of the cluster *found* in the file at *path*, its document).

    In the YAML, the paths of traces are relative to *folder*. The defaults are those of `defaults_for_files`.
    """
    document = Document(found.document(), str(path))
    given = {name: set(keys) for name, keys in found.nodes.items()}
    joined = [set(keys) for keys in found.links]
    fill(document, as_overrides({}, of_file=True))
    data = document.data
    head = {key: value for key, value in data.items() if key not in ("nodes", "links", "routes")}
    lines = [f"# Written by `simcluster import` from {printable(path.name)}."]
    lines += [f"# {printable(warning)}" for warning in found.warnings]
    lines += _yaml(head, width=110).splitlines() if head else []
    lines.append("nodes:")
    for name, keys in _moved(data["nodes"], path.parent, folder).items():
        lines.append(f"  {_flow(name)}: {_flow(keys)}{_origin(found.origins.get(name, ''), keys, given[name])}")
    lines.append("links:" if data["links"] else "links: []")
    for index, keys in enumerate(_moved(data["links"], path.parent, folder)):
        lines.append(f"  - {_flow(keys)}{_origin(found.origins.get(index, ''), keys, joined[index])}")
    if data.get("routes"):
        lines += ["routes:", *(f"  - {_flow(route)}" for route in data["routes"])]
    return "\n".join([*lines, ""]), document


def _origin(origin: str, keys: Mapping[str, Any], before: set[str]) -> str:
    """Return the comment of a node or link: where *keys* come from, of which the file has those of *before*."""
    options = [f"--{key}" for key in ("device", "flops", "bandwidth", "latency") if key in keys and key not in before]
    words = [
        *([printable(origin)] if origin else []),
        *(["from the command: " + ", ".join(options)] if options else []),
    ]
    return f"  # {'; '.join(words)}" if words else ""


def _moved(value: Any, before: Path, after: Path) -> Any:
    """Return *value*, in which the path of each `file` is relative to *after* instead of *before*."""
    if isinstance(value, list):
        return [_moved(one, before, after) for one in value]
    if not isinstance(value, dict):
        return value
    made = {key: _moved(one, before, after) for key, one in value.items()}
    if isinstance(file := made.get("file"), str) and not Path(file).is_absolute():
        made["file"] = os.path.relpath(before.resolve() / file, after.resolve())
    return made


def _flow(value: Any) -> str:
    return _yaml(value, default_flow_style=True, width=math.inf).removesuffix("...\n").strip()


class _Dumper(yaml.SafeDumper):
    """PyYAML's dumper, which also quotes text that YAML 1.2, unlike PyYAML, reads as a number: 1e3."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    try:
        style = None if resolve(text) == text else "'"
    except ValueError:  # a number that is too long
        style = "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


_Dumper.add_representer(str, _text)


def _yaml(value: Any, **layout: Any) -> str:
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, **layout)
    return text
