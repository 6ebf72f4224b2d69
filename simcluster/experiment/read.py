"""The experiment file: what runs where, on what, for how long. All of its errors at once."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from simcluster.documents import yaml as yaml_lines
from simcluster.documents.reading import Reading
from simcluster.documents.shipped import shipped_names, shipped_path
from simcluster.documents.yaml import Document
from simcluster.errors import Problem, UsageError, nearest
from simcluster.experiment.blocks import read_algorithm, read_topology, read_workload
from simcluster.experiment.checkpoint import CheckpointSettings, read_checkpoint
from simcluster.experiment.model_cuts import check_cut, put_numbers
from simcluster.experiment.observe import read_observe
from simcluster.experiment.overrides import add_faults, apply_overrides
from simcluster.experiment.stop import count_steps, read_stop
from simcluster.fault_plans.kinds import Fault
from simcluster.fault_plans.read import read_faults
from simcluster.intra_op import one_thread
from simcluster.limits import MOST_STEPS, MOST_WHOLE
from simcluster.topology import Topology
from simcluster.workloads import Workload
from simcluster.workloads.workload import Numerics

KEYS = (
    "name",
    "topology",
    "algorithm",
    "workload",
    "stop",
    "evaluate_every",
    "evaluate_consensus",
    "faults",
    "seed",
    "numerics",
    "check_memory",
    "checkpoint",
    "observe",
    "regroup",
    "backend",
)
BACKENDS = ("sim", "sockets", "torch")
EVALUATIONS = 50
"""How often a run is evaluated if the file does not say."""


@dataclass(frozen=True)
class Experiment:
    """A valid experiment. *document* is its resolved form, which reads back to the same one."""

    name: str
    topology: Topology
    algorithm: Callable[..., Any]
    algorithm_settings: dict[str, Any]
    workload: Workload
    steps: int
    time_s: float | None
    evaluate_every: int
    evaluate_consensus: bool
    faults: tuple[Fault, ...]
    seed: int
    numerics: Numerics
    check_memory: bool
    checkpoint: CheckpointSettings | None
    gradient_norms: bool
    regroup: bool
    backend: str
    document: dict[str, Any] = field(repr=False)

    @property
    def algorithm_name(self) -> str:
        return str(self.document["algorithm"].get("name") or self.document["algorithm"]["path"])


@one_thread()
def read_experiment(
    source: str | Path | Mapping[str, Any],
    overrides: Mapping[str, Any] | None = None,
    *,
    topology: str | Path | Mapping[str, Any] | None = None,
    algorithm: str | None = None,
    seed: int | None = None,
    backend: str | None = None,
    faults: Sequence[Mapping[str, Any]] = (),
) -> Experiment:
    """Reads *source*: a path, the name of a shipped experiment, or the keys themselves.

    *overrides* map dotted keys to values (`{"algorithm.pull_interval": 4}`, `{"topology.nodes.pi4.device": ...}`);
    *topology*, *algorithm*, *seed* and *backend* replace those of the file; *faults* come on top of its own. Raises
    UsageError with every problem found.
    """
    reading = Reading(*_open(source))
    options = {"topology": topology, "algorithm": algorithm, "seed": seed, "backend": backend}
    of_topology = apply_overrides(reading, KEYS, options, overrides or {})
    add_faults(reading, faults)
    return _read(reading, of_topology)


def _open(source: str | Path | Mapping[str, Any]) -> tuple[Document, Path]:
    if isinstance(source, Mapping):
        # A copy through and through: overrides are put into it, and the mapping is its owner's.
        return Document(copy.deepcopy(dict(source))), Path.cwd()
    if not isinstance(source, (str, Path)):
        raise UsageError(Problem("experiment", repr(source), "a file, the name of a shipped one, or a mapping of keys"))
    path = Path(source)
    if not os.path.exists(path):  # a name too long is none: Path.exists raises
        shipped = shipped_path("experiments", str(source))
        if shipped is None:
            known = nearest(str(source), shipped_names("experiments"))
            raise UsageError(Problem("experiment", repr(str(source)), f"a file, or a shipped one: {known}"))
        path = shipped
    document = yaml_lines.load(path)
    if not isinstance(document.data, dict):
        raise UsageError(document.problem((), expected="a mapping with the keys " + ", ".join(KEYS)))
    return document, path.resolve().parent


def _read(reading: Reading, of_topology: Mapping[str, Any]) -> Experiment:
    for key in reading.document.data:
        if key not in KEYS:
            reading.bad((key,), nearest(str(key), KEYS), "unknown key", at_key=True)
    name = reading.value("name", str, "a short text", default=_stem(reading))
    seed = reading.value(
        "seed", int, f"a whole number of at least 0 and at most {MOST_WHOLE}", default=0, least=0, most=MOST_WHOLE
    )
    backend = reading.value("backend", str, " or ".join(BACKENDS), default="sim", one_of=BACKENDS)
    numerics = _numerics(reading, backend)
    check_memory = _check_memory(reading)
    cluster = read_topology(reading, of_topology)
    function, algorithm_block, settings = read_algorithm(reading, cluster, seed)
    put_numbers(algorithm_block, settings, cluster)
    workload, workload_block = read_workload(reading)
    faults = read_faults(reading, cluster, seed)
    stop, time_s = read_stop(reading)
    steps = count_steps(reading, workload, cluster, seed, stop, numerics, backend)
    often = max(1, -(-steps // EVALUATIONS))
    expected = f"a whole number of at least 1 and at most {MOST_STEPS}"
    evaluate_every = reading.value("evaluate_every", int, expected, default=often, least=1, most=MOST_STEPS)
    evaluate_consensus = _evaluate_consensus(reading, numerics)
    checkpoint = read_checkpoint(reading, function, settings, numerics)
    gradient_norms = read_observe(reading, algorithm_block, numerics)
    regroup = _true_or_false(reading, "regroup", default=True) is not False
    check_cut(reading, function, settings, workload, cluster, numerics)
    if reading.problems:
        raise UsageError(reading.problems)
    assert cluster is not None, "a topology that is missing was a problem"
    assert function is not None
    assert workload is not None
    resolved = {
        "name": name,
        "topology": cluster.document,
        "algorithm": algorithm_block,
        "workload": workload_block,
        "stop": stop,
        "evaluate_every": evaluate_every,
        **({"evaluate_consensus": True} if evaluate_consensus else {}),
        "faults": reading.document.data.get("faults") or [],
        "seed": seed,
        "numerics": numerics,
        "check_memory": check_memory,
        **({"checkpoint": checkpoint.block} if checkpoint is not None else {}),
        **({"observe": {"gradient_norms": True}} if gradient_norms else {}),
        **({"regroup": False} if not regroup else {}),
        "backend": backend,
    }
    return Experiment(
        name=name,
        topology=cluster,
        algorithm=function,
        algorithm_settings=settings,
        workload=workload,
        steps=steps,
        time_s=time_s,
        evaluate_every=evaluate_every,
        evaluate_consensus=evaluate_consensus,
        faults=faults,
        seed=seed,
        numerics=numerics,
        check_memory=check_memory,
        checkpoint=checkpoint,
        gradient_norms=gradient_norms,
        regroup=regroup,
        backend=backend,
        document=resolved,
    )


def _numerics(reading: Reading, backend: str) -> Numerics:
    numerics: Numerics = reading.value("numerics", str, "real or none", default="real", one_of=get_args(Numerics))
    if numerics == "none" and backend != "sim":
        reading.bad(("numerics",), f"real, since {backend} computes on real nodes; none is for the simulator")
    return numerics


def _check_memory(reading: Reading) -> bool:
    return _true_or_false(reading, "check_memory", default=True) is not False


def _evaluate_consensus(reading: Reading, numerics: Numerics) -> bool:
    wanted = _true_or_false(reading, "evaluate_consensus", default=False) is True
    if wanted and numerics == "none":
        reading.bad(("evaluate_consensus",), "numerics: real beside it, since without there are no weights")
    return wanted


def _true_or_false(reading: Reading, key: str, *, default: bool) -> object:
    value = reading.document.data.get(key, default)
    if not isinstance(value, bool):
        reading.bad((key,), "true or false")
    return value


def _stem(reading: Reading) -> str:
    """The name of an experiment that has none: its file's."""
    return Path(reading.document.file).stem if reading.document.file else "experiment"
