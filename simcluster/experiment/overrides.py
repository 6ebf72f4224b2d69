"""Put options, and dotted keys as in `--set`, into an experiment's document."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from simcluster.documents.reading import Reading
from simcluster.errors import Problem, nearest


def apply_overrides(
    reading: Reading, keys: tuple[str, ...], options: Mapping[str, Any], overrides: Mapping[str, Any]
) -> dict[str, Any]:
    """Put *options*, then *overrides*, into the document of the known *keys*; return those inside the topology."""
    _apply_options(reading, options)
    _write_out(reading)
    of_topology = {}
    for key, value in overrides.items():
        first, _, rest = key.partition(".")
        if first == "topology" and rest:
            of_topology[rest] = value
        elif first not in keys:
            reading.problems.append(Problem(f"--set {key}", f"unknown key {first!r}", nearest(first, keys)))
        else:
            _write_out_kind(reading, tuple(key.split(".")))
            reading.collect(partial(reading.document.override, tuple(key.split(".")), value, "--set"))
            _write_out(reading)
    return of_topology


def add_faults(reading: Reading, faults: Sequence[Mapping[str, Any]]) -> None:
    """Append *faults*, planned by a program, to those of the document."""
    data = reading.document.data
    if not faults or not isinstance(data.get("faults") or [], list):
        return
    own = len(data.get("faults") or [])
    data["faults"] = [*(data.get("faults") or []), *(dict(fault) for fault in faults)]
    for number in range(own, own + len(faults)):
        reading.document.overrides["faults", number] = "simcluster.faults()"


def _apply_options(reading: Reading, options: Mapping[str, Any]) -> None:
    for key, value in options.items():
        if value is None:
            continue
        if key == "topology" and isinstance(value, (str, Path)):
            # A path on the command line is relative to where the command is given, not to the file.
            value = str(Path(value).resolve()) if os.path.exists(value) else str(value)
        if key == "algorithm":
            value = {"name": value}
        reading.document.override((key,), value, f"--{key}")


def _write_out(reading: Reading) -> None:
    """Expand `algorithm: edp`, short for `algorithm: {name: edp}`, everywhere."""
    data = reading.document.data
    for key in ("algorithm", "workload"):
        if isinstance(data.get(key), str):
            data[key] = {"name": data[key]}


def _write_out_kind(reading: Reading, path: tuple[str, ...]) -> None:
    """Expand `compression: top_k`, short for `compression: {kind: top_k}`, if *path* continues inside it."""
    if len(path) > 2 and path[0] in ("algorithm", "workload"):
        name = reading.document.get(path[:2])
        if isinstance(name, str) and path[1] not in ("name", "path"):
            reading.document.data[path[0]][path[1]] = {"kind": name}
