"""Read an experiment, and report all its problems at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from simcluster.algorithms.facts import facts_of
from simcluster.algorithms.model_parallel.order import AUTO
from simcluster.documents import yaml as yaml_lines
from simcluster.documents.captured.source import SourceModule, is_unwritten
from simcluster.documents.reading import DocumentReading
from simcluster.documents.recognise import refuse_foreign
from simcluster.documents.shipped import shipped_names, shipped_path
from simcluster.documents.user_code import spelling
from simcluster.documents.yaml import Document
from simcluster.errors import Problem, UsageError, raise_all
from simcluster.experiment.read import batches
from simcluster.experiment.read.batches import check_regroups, check_weighed, joined
from simcluster.experiment.read.blocks import read_algorithm, read_topology, read_workload
from simcluster.experiment.read.experiment import NAMED, Experiment, possible
from simcluster.experiment.read.fit import (
    check_cut,
    check_fit,
    check_patience,
    check_size,
    count_steps,
    put_numbers,
    put_order,
)
from simcluster.experiment.read.given import (
    KNOWN,
    AnyAlgorithm,
    AnyExperiment,
    AnyTopology,
    AnyWorkload,
    block_of,
    experiment_value,
    topology_value,
    value_at,
)
from simcluster.experiment.read.keys import KEYS, ExperimentBlock, meant_key
from simcluster.experiment.read.script import ends_by_itself, expand_script, script_run
from simcluster.experiment.read.worlds import read_worlds
from simcluster.fault_plans.read import read_faults
from simcluster.process.intra_op import one_thread
from simcluster.process.system_randomness import system_draws_noticed
from simcluster.spelling import nearest
from simcluster.topology import Topology
from simcluster.topology.model.compute import wrong_compute
from simcluster.topology.read.overrides import ALL

Home = Callable[[str, str, str, int], Path]
"""A function that returns a run's directory from its name, algorithm, backend and seed."""

EVALUATIONS = 50
"""The approximate number of evaluations in a run by default."""


WRITTEN_OUT = 4096
"""Limit on the nodes of a generated topology that a run's configuration lists one by one."""


_OTHERS = {
    ".py": ("a Python file", "an experiment that uses it: quickstart --algorithm {algorithm}; or --script {file}"),
    ".zip": ("an archive", "an experiment; a run is shown by its folder: unpack it first"),
}
"""Suffix of a file that users take for an experiment -> (what it is, what to use instead)."""


@one_thread()
def read_experiment(
    source: AnyExperiment,
    overrides: Mapping[str, Any] | None = None,
    *,
    topology: AnyTopology | None = None,
    algorithm: AnyAlgorithm | None = None,
    workload: AnyWorkload | None = None,
    seed: int | None = None,
    backend: str | None = None,
    compute: str | None = None,
    faults: Sequence[Mapping[str, Any]] = (),
    home: Home | None = None,
    folder: Path | None = None,
    resumes: bool = False,
) -> Experiment:
    """Return the experiment of *source*: a path, the name of a shipped one, or a mapping of keys.

    *topology*, *algorithm*, *workload*, *seed* and *backend* replace the values in *source*, and
    *compute* replaces that of every node. *overrides* map dotted keys to values:
    `{"algorithm.pull_interval": 4}`, `{"topology.nodes.pi4.device": ...}`. *faults* are added to
    those in *source*.

    *home* returns the directory of the run, for functions without a file. *folder* is the directory
    of the run that a mapping comes from. *resumes*: whether the run resumes from a checkpoint, so
    that it needs no file with initial weights. Raise UsageError with every problem found.
    """
    document, base = _open(source)
    reading = DocumentReading(document, folder or base)
    reading.resumes = resumes
    options = {"topology": topology, "algorithm": algorithm, "workload": workload, "seed": seed, "backend": backend}
    of_topology = _compute(reading, compute) | _override(reading, options, overrides or {})
    own = reading.document.data.get("faults") or []
    if faults and isinstance(own, list):
        reading.document.data["faults"] = [*own, *(dict(fault) for fault in faults)]
        for number in range(len(own), len(own) + len(faults)):
            reading.document.overrides["faults", number] = "simcluster.faults()"
    noticed = list[tuple[str, str]]()
    try:
        with system_draws_noticed(lambda *draw: noticed.append(draw)):
            return replace(_read(reading, of_topology, home), noticed=tuple(noticed))
    except UsageError as error:
        raise UsageError([_without_place(problem) for problem in error.problems]) from error.__cause__


def _without_place(problem: Problem) -> Problem:
    """Return *problem*, without its file and line if these are in a captured source never written."""
    if problem.file is None or not is_unwritten(Path(problem.file)):
        return problem
    return replace(problem, file=None, line=None, column=None)


def _algorithm_in(reading: DocumentReading) -> str:
    """Return the name or path of the algorithm, before it is read."""
    block = reading.document.data.get("algorithm")
    given = (block.get("name") or block.get("path")) if isinstance(block, Mapping) else block
    return given.label if isinstance(given, SourceModule) else str(given)


def _name(reading: DocumentReading, top: ExperimentBlock) -> str:
    file = reading.document.file
    return top.name or (Path(file).stem if file else "experiment")


def _open(source: AnyExperiment) -> tuple[Document, Path]:
    if isinstance(source, Mapping):
        # Copy deeply: overrides change the document, but must not change the caller's mapping.
        return Document(experiment_value(source)), Path.cwd()
    if not isinstance(source, (str, Path)):
        raise UsageError("experiment", repr(source), "a file, the name of a shipped one, or a mapping of keys")
    path = Path(source)
    if not os.path.exists(path):  # False for a name that is too long, for which Path.exists raises
        shipped = shipped_path("experiments", str(source))
        if shipped is None:
            known = nearest(str(source), shipped_names("experiments"))
            raise UsageError("experiment", repr(str(source)), f"a file, or a shipped one: {known}")
        path = shipped
    if path.suffix in _OTHERS and path.is_file():
        kind, expected = _OTHERS[path.suffix]
        raise UsageError("experiment", f"{path}, {kind}", expected.format(algorithm=spelling(str(path)), file=path))
    refuse_foreign(path, "experiment")
    document = yaml_lines.load(path)
    if document.data is None:
        expected = "an experiment; `simcluster new DIR` writes one to begin with"
        raise UsageError(document.problem((), found="an empty file", expected=expected))
    if not isinstance(document.data, dict):
        raise UsageError(document.problem((), expected="a mapping with the keys " + ", ".join(KEYS)))
    return document, path.resolve().parent


def _compute(reading: DocumentReading, compute: str | None) -> dict[str, Any]:
    """Return the override of the topology that makes every node compute on *compute*."""
    wrong = wrong_compute(compute) if compute is not None else ""
    if wrong:
        reading.problems.append(Problem("--compute", repr(compute), wrong))
    return {} if compute is None or wrong else {f"nodes.{ALL}.compute": compute}


def _override(reading: DocumentReading, options: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Put *options*, then *overrides*, into the document; return the overrides of the topology."""
    document = reading.document
    for key, value in options.items():
        if value is None:
            continue
        if key == "topology" and isinstance(value, (str, Path)):
            # A path on the command line is relative to the working directory, not to the file.
            value = str(Path(value).resolve()) if os.path.exists(value) else str(value)
        elif key == "topology":
            value = topology_value(value)
        elif key in KNOWN:
            value = block_of(key, value)
        document.override((key,), value, f"--{key}")
    _write_out(document)
    of_topology = {}
    for key, given in overrides.items():
        value = value_at(key, given)
        first, _, rest = key.partition(".")
        path = tuple(key.split("."))
        if first == "topology" and rest:
            of_topology[rest] = value
        elif first not in KEYS:
            reading.problems.append(Problem(f"--set {key}", f"unknown key {first!r}", meant_key(first)))
        else:
            if len(path) > 2 and first in NAMED and path[1] not in ("name", "path"):
                kind = document.get(path[:2])
                if isinstance(kind, str):  # `compression: top_k`, short for `compression: {kind: top_k}`
                    document.data[first][path[1]] = {"kind": kind}
            reading.collect(partial(document.override, path, value, "--set"))
            _write_out(document)
    return of_topology


def _write_out(document: Document) -> None:
    """Expand short forms: `algorithm: edp` becomes `{name: edp}`; a string with a colon is a path."""
    if isinstance(document.data.get("script"), str):
        document.data["script"] = {"file": document.data["script"]}
    for key in KNOWN:
        if isinstance(document.data.get(key), str):
            document.data[key] = {"path" if ":" in document.data[key] else "name": document.data[key]}


def _read(reading: DocumentReading, of_topology: Mapping[str, Any], home: Home | None) -> Experiment:
    ends_by_itself(reading)
    top = reading.read(ExperimentBlock.read, ()) or ExperimentBlock()
    if reading.document.data.get("script") is not None:  # *top* lacks it if another key is wrong
        of_topology = {**expand_script(reading), **of_topology}
        raise_all(reading.problems)
        top = reading.read(ExperimentBlock.read, ()) or ExperimentBlock()
    if home is not None:
        reading.home = lambda: home(_name(reading, top), _algorithm_in(reading), top.backend, top.seed)
    by_topology = _by_topology(reading.document)
    cluster = read_topology(reading, of_topology)
    function, algorithm_block, settings = read_algorithm(reading, cluster, top.seed, partial(script_run, top, cluster))
    if cluster is not None:
        put_numbers(algorithm_block, settings, cluster, function)
    workload, workload_block = read_workload(reading, cluster, top.numerics, top.seed)
    faults = read_faults(reading, cluster, top.seed)
    worlds, world_block = read_worlds(reading, top.seed, top.backend)
    if cluster is not None and function is not None and workload is not None:
        workload = joined(reading, function, settings, workload, len(cluster.workers))
    steps = 1
    if cluster is not None and workload is not None and not reading.problems:
        in_parts = facts_of(function).parts(len(cluster.workers), settings)
        steps = count_steps(reading, workload, cluster, top, in_parts=in_parts)
    check_fit(reading, top, function, settings)
    if function is not None and workload is not None:
        check_weighed(reading, function, settings, workload)
        check_regroups(reading, function, workload, possible(faults, worlds) if top.regroup else ())
    raise_all(reading.problems)
    assert cluster is not None, "a topology that is missing was a problem"
    assert function is not None
    assert workload is not None
    name = _name(reading, top)
    often = top.evaluate_every or max(1, -(-steps // EVALUATIONS))
    plan = Experiment(
        name=name,
        topology=cluster,
        algorithm=function,
        algorithm_settings=settings,
        workload=workload,
        steps=steps,
        time_s=top.stop.time_s,
        evaluate_every=often,
        evaluate_consensus=top.evaluate_consensus,
        faults=faults,
        worlds=worlds,
        seed=top.seed,
        numerics=top.numerics,
        check_memory=top.check_memory,
        checkpoint=top.checkpoint,
        observe=top.observe,
        regroup=top.regroup,
        backend=top.backend,
        document=_resolved(top, name, cluster, algorithm_block, workload_block, often) | world_block,
        by_topology=by_topology,
    )
    check_size(reading, plan)
    check_patience(reading, plan)
    put_order(reading, plan)
    raise_all(reading.problems)
    check_cut(reading, plan)
    raise_all(reading.problems)
    return plan


def _resolved(
    top: ExperimentBlock, name: str, cluster: Topology, algorithm: Mapping[str, Any], workload: Any, often: int
) -> dict[str, Any]:
    """Return the document of the experiment with all defaults, as the run's config file has it."""
    return {
        "name": name,
        "topology": _written(cluster),
        "algorithm": algorithm,
        "workload": workload,
        "stop": top.stop.block,
        "evaluate_every": often,
        **({"evaluate_consensus": True} if top.evaluate_consensus else {}),
        "faults": top.planned or [],
        "seed": top.seed,
        "numerics": top.numerics,
        "check_memory": top.check_memory,
        **({"checkpoint": top.checkpoint.block} if top.checkpoint is not None else {}),
        **({"observe": top.observe.block} if top.observe.block else {}),
        **({"regroup": False} if not top.regroup else {}),
        "backend": top.backend,
    }


def _written(cluster: Topology) -> Mapping[str, Any]:
    """Return the document of *cluster*, or the keys of its generator if it is large and generated."""
    if len(cluster.nodes) <= WRITTEN_OUT or cluster.generated is None:
        return cluster.document
    return cluster.generated


def _by_topology(document: Document) -> dict[str, Any]:
    """Return dotted key -> value of the settings that the topology decides.

    These are an order, rates, and batch sizes by device.
    """
    algorithm, batch = document.get(("algorithm",)), document.get(batches.PATH)
    settings = algorithm.items() if isinstance(algorithm, Mapping) else ()
    found = {f"algorithm.{key}": value for key, value in settings if value in (AUTO, "topology")}
    return found | ({".".join(batches.PATH): dict(batch)} if isinstance(batch, Mapping) and "by" in batch else {})
