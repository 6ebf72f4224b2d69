"""Read the blocks of an experiment that refer to something: topology, algorithm and workload."""

from __future__ import annotations

import json
import math
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from simcluster.algorithms import ALGORITHMS
from simcluster.algorithms.facts import facts_of
from simcluster.documents.captured.source import SourceModule, found_in
from simcluster.documents.reading import DocumentReading
from simcluster.documents.settings import Function, validate
from simcluster.documents.user_code import calling, catch_alls, check_algorithm, load_function, spelling
from simcluster.documents.yaml import MISSING
from simcluster.documents.yaml_build import KeyPath
from simcluster.errors import Problem, UsageError
from simcluster.experiment.read import batches
from simcluster.experiment.read.fit import a_replica, report_settings
from simcluster.overlays import World
from simcluster.process.generators import seeded, turn
from simcluster.rng import seed_sequence
from simcluster.runs.folder import CHECKPOINTS, FINAL
from simcluster.scripts.messages import ScriptRun
from simcluster.scripts.run_script import NAME as SCRIPT
from simcluster.scripts.run_script import no_workload, script_for
from simcluster.spelling import nearest
from simcluster.topology import Topology
from simcluster.topology import load as load_topology
from simcluster.topology.read.overrides import ALL
from simcluster.workloads import WORKLOADS, Workload
from simcluster.workloads.models.gpt import LEARNT
from simcluster.workloads.recipe import is_of_recipe, told_apart, with_recipe
from simcluster.workloads.workload import Numerics

FILES = ("data", "weights", "tokenizer")
"""The settings of shipped workloads that may be paths, relative to the file that has them."""

KEPT = 4
_kept: OrderedDict[tuple[Function, str], Workload] = OrderedDict()
"""(function, settings) -> workload for the latest shipped workloads.

The points of a sweep share them, so that data is read and costs are counted only once.
"""


def read_topology(reading: DocumentReading, overrides: Mapping[str, Any]) -> Topology | None:
    """Return the topology with *overrides*. If it is invalid, report problems and return None."""
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
    """Return *problem* of the topology with a place in the experiment, or the option it is from."""
    if problem.file is not None:
        return problem
    key, _, origin = problem.key.partition("override ")
    if origin:
        # The key is "override nodes.x.y" if the topology has no such place, and
        # "nodes.x.y (set by override nodes.x.y)" if the value there is wrong.
        option = origin.removesuffix(")")
        if key and f".{ALL}." in option:  # the key says at which node
            return replace(problem, key=f"topology.{key.removesuffix(' (set by ')} (set for all nodes)")
        return replace(problem, key=f"topology.{option} (set by --set)" if key else f"--set topology.{option}")
    here = reading.document.problem(("topology",), expected="")
    if isinstance(source, str):  # not a file, then
        return replace(here, found=f"{source!r}, {problem.found}", expected=problem.expected)
    return replace(here, key=f"topology.{problem.key}", found=problem.found, expected=problem.expected)


def read_algorithm(
    reading: DocumentReading, cluster: Topology | None, seed: int, script: Callable[[], ScriptRun]
) -> tuple[Function | None, dict[str, Any], dict[str, Any]]:
    """Return (the algorithm, its resolved block, its validated settings) for a run on *cluster*.

    *cluster* is None if the topology is invalid. The algorithm is None if its block is invalid.
    """
    before = len(reading.problems)
    world = World(reading.folder, tuple(cluster.workers), seed) if cluster is not None else None
    known = ALGORITHMS | _of_script(reading, lambda: script_for(script()))
    function, block, settings = read_function(reading, ("algorithm",), known, seed, {"world": world})
    if SCRIPT in known:
        reading.problems[before:] = [_in_block_script(reading, problem) for problem in reading.problems[before:]]
    if function is not None:
        reading.collect(lambda: check_algorithm(function, "algorithm"))
    if cluster is not None and len(reading.problems) == before:
        report_settings(reading, lambda: facts_of(function).world(len(cluster.workers), settings))
    return function, block, settings


def _in_block_script(reading: DocumentReading, problem: Problem) -> Problem:
    """Return *problem* of the algorithm with its place in the block `script`, which users write."""
    key = problem.key.replace("algorithm", SCRIPT, 1)
    if problem.line is None:
        return replace(problem, key=key)
    line, column = reading.document.mark(tuple(key.split("."))) or (None, None)
    return replace(problem, key=key, line=line, column=column)


def _of_script(reading: DocumentReading, make: Callable[[], Function]) -> dict[str, Function]:
    """Return {SCRIPT: the result of *make*} if the experiment runs a script, else {}."""
    return {SCRIPT: make()} if reading.document.get(("algorithm", "name")) == SCRIPT else {}


def read_workload(
    reading: DocumentReading, cluster: Topology | None, numerics: Numerics, seed: int
) -> tuple[Workload | None, dict[str, Any]]:
    """Return (the workload, its resolved block), with batch sizes by node if the block has them.

    If it is invalid, problems are reported, and the workload is None.
    """
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
    """Return (workload, block) as if the batch size were *samples* on every node."""
    block = reading.document.data["workload"]
    given, block["batch_size"] = block["batch_size"], samples
    try:
        return _read_workload(reading, seed)
    finally:
        block["batch_size"] = given


def _read_workload(reading: DocumentReading, seed: int) -> tuple[Workload | None, dict[str, Any]]:
    before = len(reading.problems)
    known = {**WORKLOADS, **_of_script(reading, lambda: no_workload)}
    function, block, settings = read_function(reading, ("workload",), known, seed, own=with_recipe)
    if function is not None:
        reading.problems += catch_alls(function, "workload")
    if function is None or len(reading.problems) > before:
        return None, block
    given = reading.document.data["workload"]
    block, settings = (told_apart(function, values, given) for values in (block, settings))
    workload = reading.collect(lambda: _made(function, block, settings, seed))
    if len(reading.problems) == before and not isinstance(workload, Workload):
        reading.bad(("workload", "path"), f"a function that returns a Workload, not a {type(workload).__name__}")
        return None, block
    if workload is not None and reading.resumes:
        workload = workload.with_recipe({"weights": None})
    return workload and workload.named(function.__name__), block


def _made(function: Function, block: Mapping[str, Any], settings: Mapping[str, Any], seed: int) -> Any:
    """Return the workload that *function* makes; cache shipped workloads that read no file.

    The global generators are seeded for a function of the user, so that every process draws the
    same numbers.
    """
    if "path" in block:
        with turn, seeded(seed_sequence(seed, "workload")):
            return calling(function, lambda: function(**settings), "a function that returns a Workload")
    key = (function, json.dumps(block, sort_keys=True, default=repr))
    workload = _kept.pop(key, None) or calling(function, lambda: function(**settings), "a Workload")
    if not _files_of(settings, FILES):
        _kept[key] = workload
        while len(_kept) > KEPT:
            _kept.popitem(last=False)
    return workload


def read_function(
    reading: DocumentReading,
    path: KeyPath,
    known: Mapping[str, Function],
    seed: int,
    context: Mapping[str, Any] | None = None,
    own: Callable[[Function], Function] = lambda function: function,
) -> tuple[Function | None, dict[str, Any], dict[str, Any]]:
    """Return (the function that the block at *path* names, the resolved block, its validated settings).

    *known* has the functions that a name may stand for; if empty, the block has a path. *own* gives a
    user's function the settings that shipped ones have.
    """
    key, block = str(path[0]), reading.document.get(path)
    if not isinstance(block, dict) or ("name" in block) == ("path" in block):
        reading.bad(path, (f"a name ({', '.join(sorted(known))}) or " if known else "") + "a path (file.py:function)")
        return None, {}, {}
    if "name" in block:
        function, identity = known.get(str(block["name"])), {"name": str(block["name"])}
        if function is None and (identity["name"].endswith(".py") or not known):
            reading.bad((*path, "name"), spelling(identity["name"], is_async=key == "algorithm"))
        elif function is None:
            reading.bad((*path, "name"), f"the {key}: {nearest(identity['name'], known)}")
    else:
        loaded = reading.collect(lambda: _loaded(reading, path, block["path"], seed))
        function, identity = (own(loaded[0]), {"path": loaded[1]}) if loaded is not None else (None, {})
    if function is None:
        return None, {}, {}
    given = {name: value for name, value in block.items() if name not in ("name", "path")}
    # A function of the user's may call something else than a file `weights` or `tokenizer`.
    files = ["data"] + ["weights"] * is_of_recipe(function, "weights") + ["tokenizer"] * ("name" in block)
    for name in _files_of(given, files):
        given[name] = str((reading.folder_of((*path, name)) / given[name]).resolve())
        if name == "weights" and os.path.isdir(given[name]):  # the directory of a run
            given[name] = os.path.join(given[name], CHECKPOINTS, FINAL)
    checked = reading.collect(lambda: validate(function, given, context))
    if checked is None:
        return function, {}, {}
    settings, wrong = checked
    for problem in wrong:
        place = (*path, problem.name, *problem.inside)
        reading.bad(place, problem.expected, problem.found or None, at_key=problem.unknown)
    return function, identity | settings, settings


def _files_of(settings: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """Return those of *names* that are set to the path of a file or directory."""
    given = [name for name in names if isinstance(settings.get(name), str)]
    return [name for name in given if name != "tokenizer" or settings[name] not in LEARNT]


def _loaded(reading: DocumentReading, path: KeyPath, given: object, seed: int) -> tuple[Function, str]:
    """Return (the function of the block at *path*, its absolute reference).

    *given* is "file.py:function" or a captured source.
    """
    if isinstance(given, SourceModule):
        if reading.home is None:
            raise UsageError(str(path[0]), given.label, "a name or file.py:function: nothing is written here")
        if given.refused is not None and reading.document.data.get("backend", "sim") != "sim":
            raise given.refused
        given = given.held_at(reading.home())
    what = ".".join(map(str, (*path, "path")))
    return load_function(found_in(reading.folder, str(given)), reading.folder_of((*path, "path")), what, seed)
