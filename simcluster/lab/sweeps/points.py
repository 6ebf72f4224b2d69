"""The points of a sweep: each is a valid experiment with one combination of values and one seed."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata, util
from pathlib import Path
from typing import Any

from simcluster.documents.captured.source import is_captured
from simcluster.documents.script_code import files_of_script
from simcluster.errors import Problem, RunError, UsageError
from simcluster.experiment.execute import run_plan
from simcluster.experiment.read.given import AnyExperiment, label_of
from simcluster.experiment.read.read import read_experiment
from simcluster.experiment.read.script import is_script
from simcluster.lab.sweeps.axes import MOST_POINTS, Axis, combinations
from simcluster.paths.inside import remove, write_whole
from simcluster.process.kernels import heed_portable
from simcluster.runs.destination import OURS

MOST_PROBLEMS = 20
ERROR, DIED = "error.txt", "died.txt"
"""Names of the files that say why a point has no run.

ERROR: the experiment proved invalid when it ran, so the point is complete. DIED: the process of the
point died, so a repeated sweep runs the point again.
"""

PACKAGES = ("torch", "numpy", "simpy")
"""Libraries that influence results: the digest of a point includes their versions."""


@dataclass(frozen=True)
class Point:
    """Point number *index* of a sweep.

    It has the *values* of the swept keys, the *digest* that names its run, and the resolved
    experiment, *document*.
    """

    index: int
    values: dict[str, Any]
    seed: int
    digest: str
    document: dict[str, Any] = field(repr=False)


def read_points(
    experiment: AnyExperiment,
    axes: Sequence[Axis],
    fixed: Mapping[str, Any],
    *,
    seeds: int = 1,
    seed: int | None = None,
    **options: Any,
) -> list[Point]:
    """Return a point for every combination of *axes* and every seed; seeds change fastest.

    There are *seeds* seeds from *seed* on, or from the experiment's seed if *seed* is None. All
    combinations have the same seeds, and random streams are keyed by names: points with equal seeds
    meet the same stragglers, batches and faults, so they can be compared. Raise UsageError, with
    all problems, if a point is invalid or there are too many.
    """
    combined = combinations(axes)
    if seeds < 1 or seeds * len(combined) > MOST_POINTS:
        found = f"{seeds} of each of {len(combined):,} combinations"
        raise UsageError("--seeds", found, f"at least 1, and at most {MOST_POINTS:,} points")
    if seeds > 1 and any("seed" in axis.keys for axis in axes):
        raise UsageError("--seeds", str(seeds), "either this or --set seed=...")
    points: list[Point] = []
    problems: dict[str, Problem] = {}
    for values in combined:
        wanted = seed
        for number in range(seeds):
            try:
                plan = read_experiment(experiment, {**fixed, **values}, seed=wanted, **options)
            except UsageError as error:
                problems.update({str(problem): problem for problem in error.problems})
                if wanted is None or not number:
                    break
            else:
                shown = {key: label_of(value) for key, value in values.items()}
                points.append(Point(len(points), shown, plan.seed, digest_of(plan.document), plan.document))
                wanted = plan.seed
            wanted += 1
    if problems:
        raise UsageError(list(problems.values())[:MOST_PROBLEMS])
    return points


def digest_of(document: Mapping[str, Any]) -> str:
    """Return 16 hexadecimal digits that name the run of *document*, a resolved experiment.

    The digest covers the document, all files that it names, this library and its dependencies:
    equal digests mean equal results.
    """
    files = {*_files(document)}
    if is_script(document):
        block = document["algorithm"]
        files |= {str(file) for file in files_of_script(Path(block["file"]), block.get("module", ""))}
        files |= {os.path.abspath(arg) for arg in block.get("args", ()) if os.path.isfile(arg)}
    content = {
        "document": document,
        "files": {path: hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in sorted(files)},
        "code": _own_code(),
        "versions": _versions(),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _files(value: object) -> Iterator[str]:
    """Yield every file that *value* names.

    Such files are data, traces, and code with all modules next to it.
    """
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _files(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _files(inner)
    elif isinstance(value, str) and len(value) < 4096:
        path, separator, _ = value.rpartition(":")
        if separator and is_captured(Path(path)):
            return  # The path of captured code contains its digest.
        if separator and path.endswith(".py") and Path(path).is_file():
            yield from (str(file) for file in Path(path).parent.glob("*.py"))
        elif value.startswith("/") and Path(value).is_file():
            yield value


@cache
def _own_code() -> str:
    """Return a digest of this library's source, since its version stays the same during
    development."""
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


def run_point(document: Mapping[str, Any], folder: str, options: Mapping[str, Any]) -> None:
    """Run the experiment *document* into *folder*; an engine calls this in one of its processes.

    A run that fails is a result as well: the folder then has its summary or an ERROR file.
    """
    heed_portable(options)
    target = Path(folder)
    if not is_complete(target):
        for name in OURS:  # A worker that was killed may have left unfinished files.
            remove(target, name)
    try:
        run_plan(read_experiment(document), out=target, options=dict(options), report=False, prints=False)
    except (RunError, UsageError) as error:  # One such case is a run that does not fit into memory.
        if error.folder is None or not is_complete(target):
            note(target, ERROR, f"{type(error).__name__}: {error}")


def is_complete(folder: Path) -> bool:
    """Return whether *folder* has a complete run or an ERROR file.

    Both are written last and atomically.
    """
    return (folder / "summary.json").is_file() or (folder / ERROR).is_file()


def note(folder: Path, name: str, text: str) -> None:
    """Write *text* into *folder* as the file *name*, which is ERROR or DIED."""
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder, name, content=f"{text}\n".encode())
