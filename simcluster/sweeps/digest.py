"""The digest of everything that a point's result depends on: the resolved experiment, the code, library versions."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import metadata, util
from pathlib import Path
from typing import Any

PACKAGES = ("torch", "numpy", "simpy")


def digest_of(document: Mapping[str, Any]) -> str:
    """Return 16 hexadecimal digits that name the run of *document*, resolved: equal only if the result is."""
    content = {
        "document": document,
        "files": {path: _file(Path(path)) for path in sorted(set(_files(document)))},
        "code": _own_code(),
        "versions": _versions(),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _files(value: object) -> Iterator[str]:
    """Yield every file that *value* names: own code (file.py:function) with its neighbours, data, traces."""
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _files(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _files(inner)
    elif isinstance(value, str) and len(value) < 4096:
        path, separator, _ = value.rpartition(":")
        if separator and path.endswith(".py") and Path(path).is_file():
            yield from (str(file) for file in Path(path).parent.glob("*.py"))
        elif value.startswith("/") and Path(value).is_file():
            yield value


def _file(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@cache
def _own_code() -> str:
    """Return a digest of this library's source: a version would suffice for a release, but not during development."""
    digest = hashlib.sha256()
    for package in ("simcluster", "simcluster_backends"):
        spec = util.find_spec(package)
        for folder in (spec.submodule_search_locations or []) if spec is not None else []:
            for path in sorted(Path(folder).rglob("*.py")):
                digest.update(f"{package}/{path.relative_to(folder)}\n".encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()


@cache
def _versions() -> dict[str, str]:
    found = {"python": f"{sys.version_info.major}.{sys.version_info.minor}"}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
