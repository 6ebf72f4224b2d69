"""The blocks of an experiment that name something: a topology, an algorithm, a workload."""

from __future__ import annotations

import json
import math
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from simcluster.algorithms import ALGORITHMS
from simcluster.algorithms.facts import facts_of
from simcluster.documents.captured.source import SourceModule, found_in
from simcluster.documents.reading import DocumentReading
from simcluster.documents.settings import validate
from simcluster.documents.user_code import calling, catch_alls, check_algorithm, load_function, spelling
from simcluster.documents.yaml import MISSING
from simcluster.errors import Problem, UsageError, nearest
from simcluster.experiment.read import batches
from simcluster.experiment.read.fit import a_replica, report_settings
from simcluster.overlays import World
from simcluster.process.generators import seeded, turn
from simcluster.rng import seed_sequence
from simcluster.scripts.messages import ScriptRun
from simcluster.scripts.run_script import NAME as SCRIPT
from simcluster.scripts.run_script import no_workload, script_for
from simcluster.topology import Topology
from simcluster.topology import load as load_topology
from simcluster.topology.read.overrides import ALL
from simcluster.workloads import WORKLOADS, Workload
from simcluster.workloads.workload import Numerics

Function = Callable[..., Any]

KEPT = 4
_kept: OrderedDict[tuple[Function, str], Workload] = OrderedDict()
"""Our latest workloads by function and settings: a sweep of hundreds of points reads and counts each once."""


def read_topology(reading: DocumentReading, overrides: Mapping[str, Any]) -> Topology | None:
    """Return the cluster with its *overrides*; None if it is invalid."""
    source = reading.document.get(("topology",))
    if not isinstance(source, (str, dict)):
        more = "" if source is MISSING else ", or a topology"
        matrix = "; of a matrix: Topology.from_networkx(networkx.from_numpy_array(matrix), device='raspberry-pi-5')"
        shape = getattr(source, "shape", None)
        more += matrix if shape is not None or isinstance(source, list) else ""
        reading.bad(("topology",), f"the name or path of a topology file{more}", shape and f"an array of shape {shape}")
        return None
    folder = reading.folder_of(("topology",))
    if isinstance(source, str) and not Path(source).is_absolute() and os.path.isfile(folder / source):
        source = str(folder / source)
    try:
        cluster = load_topology(source, overrides=overrides, folder=folder)
        if cluster.workers:
            return cluster
        reading.bad(("topology",), "at least one worker: a node with a device", f"{cluster.name}, which has none")
    except UsageError as error:
        reading.problems += [_placed(problem, reading, source) for problem in error.problems]
    return None


def _placed(problem: Problem, reading: DocumentReading, source: object) -> Problem:
    """Turn a *problem* of the topology into one of the experiment that names it, or of the option that changes it."""
    if problem.file is not None:
        return problem
    key, _, origin = problem.key.partition("override ")
    if origin:
        # "override nodes.x.y" fits nowhere in the topology; "nodes.x.y (set by override nodes.x.y)" does, but is wrong.
        option = origin.removesuffix(")")
        if key and f".{ALL}." in option:  # the key says at which node
            return replace(problem, key=f"topology.{key.removesuffix(' (set by ')} (set for all nodes)")
        return replace(problem, key=f"topology.{option} (set by --set)" if key else f"--set topology.{option}")
    here = reading.document.problem(("topology",), expected="")
    if isinstance(source, str):  # not a file, then
        return replace(here, found=f"{source!r}, {problem.found}", expected=problem.expected)
    return replace(here, key=f"topology.{problem.key}", found=problem.found, expected=problem.expected)


def read_algorithm(
    reading: DocumentReading, cluster: Topology | None, seed: int, script: ScriptRun
) -> tuple[Function | None, dict[str, Any], dict[str, Any]]:
    """Return (the algorithm, its block resolved, its validated settings) for a run on *cluster*, if known."""
    before = len(reading.problems)
    world = World(reading.folder, tuple(cluster.workers), seed) if cluster is not None else None
    known = ALGORITHMS | _of_script(reading, script_for(script))
    function, block, settings = _function(reading, "algorithm", known, seed, {"world": world})
    if SCRIPT in known:
        reading.problems[before:] = [_in_block_script(reading, problem) for problem in reading.problems[before:]]
    if function is not None:
        reading.collect(lambda: check_algorithm(function, "algorithm"))
    if cluster is not None and len(reading.problems) == before:
        report_settings(reading, lambda: facts_of(function).world(len(cluster.workers), settings))
    return function, block, settings


def _in_block_script(reading: DocumentReading, problem: Problem) -> Problem:
    """Return *problem* of the algorithm where its user wrote it: in the block `script`."""
    key = problem.key.replace("algorithm", SCRIPT, 1)
    if problem.line is None:
        return replace(problem, key=key)
    line, column = reading.document.mark(tuple(key.split("."))) or (None, None)
    return replace(problem, key=key, line=line, column=column)


def _of_script(reading: DocumentReading, function: Function) -> dict[str, Function]:
    """Return *function* under the name of a script's algorithm and workload, if the experiment runs a script."""
    return {SCRIPT: function} if reading.document.get(("algorithm", "name")) == SCRIPT else {}


def read_workload(
    reading: DocumentReading, cluster: Topology | None, numerics: Numerics, seed: int
) -> tuple[Workload | None, dict[str, Any]]:
    """Return (the workload, its block resolved), with batch sizes by node if they are given so."""
    given = reading.document.get(batches.PATH)
    if isinstance(given, list):
        expected = "one number, one for each node ({mini1: 64, pi4: 4}), or a total by speed ({total: 160, by: device})"
        reading.bad(batches.PATH, expected)
        return None, {}
    if not isinstance(given, Mapping):
        return _read_workload(reading, seed)
    if cluster is None:
        return None, {}
    names = cluster.workers
    if batches.is_by_device(given, names):
        total = batches.total_of(reading, given, names)
        if total is None:
            return None, {}
        equal, block = _with_unit(reading, max(1, total // len(names)), seed)
        if equal is None:
            return None, block
        share = partial(_by_device, equal, total, cluster, numerics)
        sizes: list[int] | None = reading.collect(share)
    else:
        sizes = batches.sizes_of(reading, given, names)
    if sizes is None:
        return None, {}
    workload, block = _with_unit(reading, math.gcd(*sizes), seed)
    block |= {"batch_size": dict(zip(names, sizes, strict=True))}
    return workload and workload.with_batches(sizes), block


def _by_device(equal: Workload, total: int, cluster: Topology, numerics: Numerics) -> list[int] | None:
    replica = a_replica(equal, len(cluster.workers), 1, numerics)
    return None if replica is None else batches.by_device(replica, total, cluster)


def _with_unit(reading: DocumentReading, samples: int, seed: int) -> tuple[Workload | None, dict[str, Any]]:
    """Return the workload with one batch size, *samples*, in place of those by node."""
    block = reading.document.data["workload"]
    given, block["batch_size"] = block["batch_size"], samples
    try:
        return _read_workload(reading, seed)
    finally:
        block["batch_size"] = given


def _read_workload(reading: DocumentReading, seed: int) -> tuple[Workload | None, dict[str, Any]]:
    before = len(reading.problems)
    function, block, settings = _function(reading, "workload", {**WORKLOADS, **_of_script(reading, no_workload)}, seed)
    if function is not None:
        reading.problems += catch_alls(function, "workload")
    if function is None or len(reading.problems) > before:
        return None, block
    workload = reading.collect(lambda: _made(function, block, settings, seed))
    if len(reading.problems) == before and not isinstance(workload, Workload):
        reading.bad(("workload", "path"), f"a function that returns a Workload, not a {type(workload).__name__}")
        return None, block
    return workload and workload.named(function.__name__), block


def _made(function: Function, block: Mapping[str, Any], settings: Mapping[str, Any], seed: int) -> Any:
    """Return the result of *function*; for one of ours that reads no file, the cached result.

    One of the user's finds the global generators seeded, so that every process draws the same from them.
    """
    if "path" in block:
        with turn, seeded(seed_sequence(seed, "workload")):
            return calling(function, lambda: function(**settings), "a function that returns a Workload")
    key = (function, json.dumps(block, sort_keys=True, default=repr))
    workload = _kept.pop(key, None) or calling(function, lambda: function(**settings), "a Workload")
    if settings.get("data") is None:
        _kept[key] = workload
        while len(_kept) > KEPT:
            _kept.popitem(last=False)
    return workload


def _function(
    reading: DocumentReading,
    key: str,
    known: Mapping[str, Function],
    seed: int,
    context: Mapping[str, Any] | None = None,
) -> tuple[Function | None, dict[str, Any], dict[str, Any]]:
    """Return (the function that block *key* names, the block resolved, its validated settings)."""
    block = reading.document.get((key,))
    if not isinstance(block, dict) or ("name" in block) == ("path" in block):
        reading.bad((key,), f"a name ({', '.join(sorted(known))}) or a path (file.py:function)")
        return None, {}, {}
    if "name" in block:
        function, identity = known.get(str(block["name"])), {"name": str(block["name"])}
        if function is None and identity["name"].endswith(".py"):
            reading.bad((key, "name"), spelling(identity["name"], is_async=key == "algorithm"))
        elif function is None:
            reading.bad((key, "name"), f"the {key}: {nearest(identity['name'], known)}")
    else:
        loaded = reading.collect(lambda: _loaded(reading, key, block["path"], seed))
        function, identity = (loaded[0], {"path": loaded[1]}) if loaded is not None else (None, {})
    if function is None:
        return None, {}, {}
    given = {name: value for name, value in block.items() if name not in ("name", "path")}
    if isinstance(given.get("data"), str):
        given["data"] = str((reading.folder_of((key, "data")) / given["data"]).resolve())
    checked = reading.collect(lambda: validate(function, given, context))
    if checked is None:
        return function, {}, {}
    settings, wrong = checked
    for problem in wrong:
        path = (key, problem.name, *problem.inside)
        reading.bad(path, problem.expected, problem.found or None, at_key=problem.unknown)
    return function, identity | settings, settings


def _loaded(reading: DocumentReading, key: str, path: object, seed: int) -> tuple[Function, str]:
    """Return the function at *path*, "file.py:function" or a captured source, and its absolute reference."""
    if isinstance(path, SourceModule):
        if reading.home is None:
            raise UsageError(Problem(key, path.label, "a name or file.py:function: nothing is written here"))
        if path.refused is not None and reading.document.data.get("backend", "sim") != "sim":
            raise path.refused
        path = path.held_at(reading.home())
    return load_function(found_in(reading.folder, str(path)), reading.folder_of((key, "path")), f"{key}.path", seed)
