"""The experiment file: what runs where, on what, for how long. All of its errors at once.

This file knows the keys of an experiment and turns them into an `Experiment`. It must not know backends, run folders or
command lines; a value that a command line sets comes in as an override.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from simcluster import yaml_lines
from simcluster.errors import Problem, UsageError, nearest
from simcluster.experiment.own_code import calling, check_algorithm, load_function
from simcluster.experiment.settings import validate
from simcluster.shipped import shipped_names, shipped_path
from simcluster.topology import Topology
from simcluster.topology import load as load_topology
from simcluster.units import UnitError, parse_latency, write_latency
from simcluster.workloads import Workload
from simcluster.yaml_lines import MISSING, Document

KEYS = (
    "name",
    "topology",
    "algorithm",
    "workload",
    "stop",
    "evaluate_every",
    "faults",
    "seed",
    "numerics",
    "backend",
)
BACKENDS = ("sim", "sockets")
STOP_KEYS = ("steps", "epochs", "time")
EVALUATIONS = 50
"""How often a run is evaluated if the file does not say."""


@dataclass(frozen=True)
class Crash:
    """A fault: the process of *rank* dies *at_s* seconds after the start."""

    rank: int
    at_s: float


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
    faults: tuple[Crash, ...]
    seed: int
    backend: str
    document: dict[str, Any] = field(repr=False)

    @property
    def algorithm_name(self) -> str:
        return str(self.document["algorithm"].get("name") or self.document["algorithm"]["path"])


def read_experiment(
    source: str | Path | Mapping[str, Any],
    overrides: Mapping[str, Any] | None = None,
    *,
    topology: str | Path | Mapping[str, Any] | None = None,
    algorithm: str | None = None,
    seed: int | None = None,
    backend: str | None = None,
) -> Experiment:
    """Reads *source*: a path, the name of a shipped experiment, or the keys themselves.

    *overrides* map dotted keys to values (`{"algorithm.pull_interval": 4}`, `{"topology.nodes.pi4.device": ...}`);
    *topology*, *algorithm*, *seed* and *backend* replace those of the file. Raises UsageError with every problem found.
    """
    document, folder = _open(source)
    options = {"topology": topology, "algorithm": algorithm, "seed": seed, "backend": backend}
    return _Reader(document, folder).read(dict(overrides or {}), options)


def _open(source: str | Path | Mapping[str, Any]) -> tuple[Document, Path]:
    if isinstance(source, Mapping):
        return Document(dict(source)), Path.cwd()
    path = Path(source)
    if not path.exists():
        shipped = shipped_path("experiments", str(source))
        if shipped is None:
            known = nearest(str(source), shipped_names("experiments"))
            raise UsageError(Problem("experiment", repr(str(source)), f"a file, or a shipped one: {known}"))
        path = shipped
    document = yaml_lines.load(path)
    if not isinstance(document.data, dict):
        raise UsageError(document.problem((), expected="a mapping with the keys " + ", ".join(KEYS)))
    return document, path.resolve().parent


class _Reader:
    """Collects problems while it reads one document."""

    def __init__(self, document: Document, folder: Path) -> None:
        self.document, self.folder = document, folder
        self.problems: list[Problem] = []

    def read(self, overrides: dict[str, Any], options: dict[str, Any]) -> Experiment:
        of_topology = self._override(overrides, options)
        for key in self.document.data:
            if key not in KEYS:
                self._bad((key,), f"one of the keys {', '.join(KEYS)}: {nearest(str(key), KEYS)}", at_key=True)
        name = self._value("name", str, "a short text", default=self._stem())
        seed = self._value("seed", int, "a whole number of at least 0", default=0, least=0)
        self._numerics()
        backend = self._value("backend", str, " or ".join(BACKENDS), default="sim", one_of=BACKENDS)
        cluster = self._topology(of_topology)
        function, algorithm_block, settings = self._function("algorithm", _algorithms())
        if function is not None:
            self._collect(lambda: check_algorithm(function, "algorithm"))
        workload, workload_block = self._workload()
        faults = self._faults(cluster)
        stop, time_s = self._stop()
        steps = self._steps(workload, cluster, seed, stop)
        evaluate_every = self._value(
            "evaluate_every", int, "a whole number of at least 1", default=max(1, -(-steps // EVALUATIONS)), least=1
        )
        if self.problems:
            raise UsageError(self.problems)
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
            "faults": self.document.data.get("faults") or [],
            "seed": seed,
            "numerics": "real",
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
            faults=faults,
            seed=seed,
            backend=backend,
            document=resolved,
        )

    def _stem(self) -> str:
        """The name of an experiment that has none: its file's."""
        return Path(self.document.file).stem if self.document.file else "experiment"

    # overrides

    def _override(self, overrides: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
        """Puts everything from outside into the document; returns what concerns the inside of the topology."""
        data = self.document.data
        for key, value in options.items():
            if value is None:
                continue
            if key == "topology" and not isinstance(value, Mapping):
                # A path on the command line is relative to where the command is given, not to the file.
                value = str(Path(value).resolve()) if Path(value).exists() else str(value)
            if key == "algorithm":
                value = {"name": value}
            self.document.override((key,), value, f"--{key}")
        self._write_out(data)
        of_topology = {}
        for key, value in overrides.items():
            first, _, rest = key.partition(".")
            if first == "topology" and rest:
                of_topology[rest] = value
            elif first not in KEYS:
                self.problems.append(Problem(f"--set {key}", repr(key), f"a key: {nearest(first, KEYS)}"))
            else:
                self._collect(partial(self.document.override, tuple(key.split(".")), value, "--set"))
                self._write_out(data)
        return of_topology

    def _write_out(self, data: dict[str, Any]) -> None:
        """`algorithm: edp` is short for `algorithm: {name: edp}`, wherever it stands."""
        for key in ("algorithm", "workload"):
            if isinstance(data.get(key), str):
                data[key] = {"name": data[key]}

    # one key each

    def _topology(self, overrides: dict[str, Any]) -> Topology | None:
        source = self.document.get(("topology",))
        if source is MISSING:
            self._bad(("topology",), "the name or path of a topology file")
            return None
        if not isinstance(source, (str, dict)):
            self._bad(("topology",), "the name or path of a topology file, or a topology")
            return None
        if isinstance(source, str) and not Path(source).is_absolute() and (self.folder / source).is_file():
            source = str(self.folder / source)
        try:
            return load_topology(source, overrides=overrides)
        except UsageError as error:
            # What is wrong with the name of the file is wrong in this file.
            here = self.document.problem(("topology",), expected="")
            self.problems += [
                replace(problem, file=here.file, line=here.line, column=here.column)
                if problem.file is None
                else problem
                for problem in error.problems
            ]
            return None

    def _function(
        self, key: str, known: Mapping[str, Callable[..., Any]]
    ) -> tuple[Callable[..., Any] | None, dict[str, Any], dict[str, Any]]:
        """(the function that block *key* names, the block resolved, its validated settings)."""
        block = self.document.get((key,))
        if not isinstance(block, dict) or ("name" in block) == ("path" in block):
            self._bad((key,), f"a name ({', '.join(sorted(known))}) or a path (file.py:function)")
            return None, {}, {}
        given = {name: value for name, value in block.items() if name not in ("name", "path")}
        if "name" in block:
            function = known.get(str(block["name"]))
            identity = {"name": block["name"]}
            if function is None:
                self._bad((key, "name"), f"the {key}: {nearest(str(block['name']), known)}")
                return None, {}, {}
        else:
            loaded = self._collect(lambda: load_function(str(block["path"]), self.folder, f"{key}.path"))
            if loaded is None:
                return None, {}, {}
            function, absolute = loaded
            identity = {"path": absolute}
        if isinstance(given.get("data"), str):
            given["data"] = str((self.folder / given["data"]).resolve())
        checked = self._collect(lambda: validate(function, given))
        if checked is None:
            return function, {}, {}
        settings, wrong = checked
        for problem in wrong:
            self.problems.append(
                self.document.problem(
                    (key, problem.name),
                    expected=problem.expected,
                    found=problem.found or None,
                    at_key=problem.unknown,
                )
            )
        return function, identity | settings, settings

    def _workload(self) -> tuple[Workload | None, dict[str, Any]]:
        before = len(self.problems)
        function, block, settings = self._function("workload", _workloads())
        if function is None or len(self.problems) > before:
            return None, block
        workload = self._collect(
            lambda: calling(function, lambda: function(**settings), "a function that returns a Workload")
        )
        if len(self.problems) == before and not isinstance(workload, Workload):
            self._bad(("workload", "path"), f"a function that returns a Workload, not a {type(workload).__name__}")
            return None, block
        return workload, block

    def _stop(self) -> tuple[dict[str, Any], float | None]:
        stop = self.document.data.get("stop", {"epochs": 1})
        if not isinstance(stop, dict):
            self._bad(("stop",), "a mapping: steps or epochs, and time")
            return {"epochs": 1}, None
        for key in stop:
            if key not in STOP_KEYS:
                self._bad(
                    ("stop", key),
                    f"one of {', '.join(STOP_KEYS)}: {nearest(str(key), STOP_KEYS)}",
                    at_key=True,
                )
        if ("steps" in stop) == ("epochs" in stop):
            self._bad(("stop",), "either steps or epochs")
        time_s = None
        if stop.get("time") is not None:
            try:
                time_s = parse_latency(stop["time"])
            except UnitError as error:
                self._bad(("stop", "time"), *_words_of(error))
            else:
                if time_s == 0:
                    self._bad(("stop", "time"), "a time above zero")
        if "steps" in stop and not _is_number(stop["steps"], int):
            self._bad(("stop", "steps"), "a whole number of at least 1")
        if "epochs" in stop and not _is_number(stop["epochs"], (int, float)):
            self._bad(("stop", "epochs"), "a finite number above 0")
        resolved = {key: stop[key] for key in ("steps", "epochs") if key in stop}
        return resolved | ({"time": write_latency(time_s)} if time_s else {}), time_s

    def _steps(self, workload: Workload | None, cluster: Topology | None, seed: int, stop: dict[str, Any]) -> int:
        """The steps of every rank; asks for one replica, so that data which cannot be dealt out is found now."""
        if workload is None or cluster is None or self.problems:
            return 1
        steps, epochs = stop.get("steps"), stop.get("epochs")
        size = len(cluster.workers)
        replica = self._collect(
            lambda: calling(
                workload.model, lambda: workload.replica(0, size, seed, steps, epochs), "a model that works"
            )
        )
        return replica.steps if replica is not None else 1

    def _faults(self, cluster: Topology | None) -> tuple[Crash, ...]:
        faults = self.document.data.get("faults") or []
        if not isinstance(faults, list):
            self._bad(("faults",), "a list of {kind: crash, node: NAME, at: TIME}")
            return ()
        crashes = []
        for index, fault in enumerate(faults):
            path = ("faults", index)
            if not isinstance(fault, dict) or fault.keys() != {"kind", "node", "at"} or fault["kind"] != "crash":
                self._bad(path, "{kind: crash, node: NAME, at: TIME}; crash is the only kind so far")
                continue
            workers = cluster.workers if cluster else [fault["node"]]
            if fault["node"] not in workers:
                self._bad((*path, "node"), f"a worker: {nearest(str(fault['node']), workers)}")
                continue
            try:
                crashes.append(Crash(workers.index(fault["node"]), parse_latency(fault["at"])))
            except UnitError as error:
                self._bad((*path, "at"), *_words_of(error))
        return tuple(crashes)

    def _numerics(self) -> None:
        if self.document.data.get("numerics", "real") != "real":
            self._bad(("numerics",), "real, the only numerics so far")

    # helpers

    def _value(
        self,
        key: str,
        kind: type,
        expected: str,
        *,
        default: Any,
        least: int | None = None,
        one_of: tuple[str, ...] | None = None,
    ) -> Any:
        value = self.document.data.get(key, default)
        right = isinstance(value, kind) and not isinstance(value, bool) and value != ""
        if not right or (least is not None and value < least) or (one_of and value not in one_of):
            self._bad((key,), expected)
            return default
        return value

    def _bad(self, path: tuple[Any, ...], expected: str, found: str | None = None, *, at_key: bool = False) -> None:
        self.problems.append(self.document.problem(path, expected=expected, found=found, at_key=at_key))

    def _collect(self, step: Callable[[], Any]) -> Any:
        """What *step* returns, or None, having noted what is wrong."""
        try:
            return step()
        except UsageError as error:
            self.problems.extend(error.problems)
            return None


def _is_number(value: Any, kinds: type | tuple[type, ...]) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool) and 0 < value < math.inf  # type: ignore[operator]


def _words_of(error: UnitError) -> tuple[str, str]:
    return error.expected, error.found


def _algorithms() -> Mapping[str, Callable[..., Any]]:
    from simcluster.algorithms import ALGORITHMS

    return ALGORITHMS


def _workloads() -> Mapping[str, Callable[..., Workload]]:
    from simcluster.workloads import WORKLOADS

    return WORKLOADS
