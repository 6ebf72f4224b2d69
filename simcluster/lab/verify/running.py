"""Run experiments for checks: each distinct run once, and within a time limit.

This module imports no backend: as for experiments, a backend is imported by name at run time.
"""

from __future__ import annotations

import copy
import functools
import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any, Literal

import safetensors.torch
import torch
from torch import Tensor

from simcluster.backend import backend_named
from simcluster.documents.own_state import changed, state_of
from simcluster.errors import RunError
from simcluster.experiment.node import remember
from simcluster.experiment.read.experiment import Experiment
from simcluster.experiment.read.read import read_experiment
from simcluster.experiment.shared_state import apart
from simcluster.job import ClusterJob
from simcluster.lab.verify import faults
from simcluster.lab.verify.probe import PROGRAM, TAKEN, TENSOR_BYTES, DrawingTransport
from simcluster.lab.verify.verdict import CheckFailed
from simcluster.process.interrupts import stop_innermost
from simcluster.runs.doubts import Warned, doubts_of
from simcluster.runs.record import NodeRecord
from simcluster.topology import chain, complete, ring, star

LIMIT_S = 60.0
"""Limit on the wall time of one run."""

SOCKETS_LIMITS = {"stuck_s": 8.0, "limit_s": 40.0}

Shape = Literal["star", "line", "ring", "complete", "islands"]
"""The shape of a network; "islands" is a line without the link to the last worker."""

Block = Mapping[str, Any]


@dataclass(frozen=True)
class RunRequest:
    """A request for one run.

    *algorithm*, *workload* and *settings* are JSON; the first two are the runner's if empty.
    *copies* is the number of times that the user's code is loaded again; the ranks take the copies
    in turn. *drawing* are the ranks that also draw from the global generators, see
    `DrawingTransport`. *again* distinguishes repetitions.
    """

    size: int
    backend: str = "sim"
    settings: str = "{}"
    workload: str = ""
    algorithm: str = ""
    steps: int = 8
    seed: int = 0
    shape: Shape = "star"
    uneven: bool = False
    fault: str = ""
    time: str = ""
    copies: int = 0
    drawing: tuple[int, ...] = ()
    again: int = 0


@dataclass(frozen=True)
class RunResult:
    """The result of a run.

    *error* is None unless the run failed. *nodes* has each node's record; *weights* has each node's
    weights, None if it has none.
    """

    plan: Experiment = field(repr=False)
    error: BaseException | None
    nodes: Sequence[NodeRecord] = field(repr=False)
    weights: Sequence[list[Tensor] | None] = field(repr=False)
    trace_sha256: str
    lost: Mapping[str, str]
    faults: Sequence[Mapping[str, Any]]
    doubts: Sequence[Warned] = ()

    @property
    def failure(self) -> str:
        """The first line of the error; "" if the run did not fail."""
        return "" if self.error is None else f"{type(self.error).__name__}: {self.error}".splitlines()[0]

    def ended(self, where: str) -> RunResult:
        """Return this result. Raise CheckFailed, naming *where*, if the run failed."""
        if self.error is not None:
            raise CheckFailed(f"{where}: {self.failure}")
        return self

    def metrics(self) -> list[dict[str, list[tuple[int, float]]]]:
        """Return each rank's metrics, as name -> list of (step, value) in the order recorded."""
        found: list[dict[str, list[tuple[int, float]]]] = [{} for _ in self.nodes]
        for own, node in zip(found, self.nodes, strict=True):
            for metric in node.metrics:
                if metric.name not in (TAKEN, TENSOR_BYTES):
                    own.setdefault(metric.name, []).append((metric.step, metric.value))
        return found

    def total(self, name: str) -> int:
        """Return the sum of the probe's count *name* over all ranks."""
        return int(sum(metric.value for node in self.nodes for metric in node.metrics if metric.name == name))

    @property
    def tensor_bytes(self) -> int:
        return self.total(TENSOR_BYTES)

    @property
    def taken(self) -> int:
        """The number of messages that the algorithm has received on all ranks."""
        return self.total(TAKEN)

    @property
    def sent(self) -> int:
        return sum(node.messages_sent for node in self.nodes)

    def same_weights(self, other: RunResult) -> bool:
        """Return whether every rank ended with the same weights as in *other*, to the bit."""
        return [node.weights_sha256 for node in self.nodes] == [node.weights_sha256 for node in other.nodes]


class TimeIsUp(KeyboardInterrupt):
    """Raised when a run exceeds its wall time. It is an interrupt, on which both backends stop."""


class Runner:
    """A runner of requests that caches results.

    The blocks *algorithm* and *workload* are the defaults.
    """

    def __init__(self, algorithm: Block, workload: Block) -> None:
        self._algorithm, self._workload = dict(algorithm), dict(workload)
        self._done: dict[RunRequest, RunResult] = {}
        self.changed: dict[RunRequest, list[str]] = {}
        """Request with *copies* -> names of the module-level state that its run changed."""

    def document(self, request: RunRequest) -> dict[str, Any]:
        """Return the experiment for *request*."""
        algorithm = json.loads(request.algorithm) if request.algorithm else self._algorithm
        return {
            "name": "verify",
            "topology": cluster(request),
            "algorithm": {**algorithm, **json.loads(request.settings)},
            "workload": json.loads(request.workload) if request.workload else self._workload,
            "stop": {"steps": request.steps} | ({"time": request.time} if request.time else {}),
            "evaluate_every": request.steps,
            "faults": [faults.plan_of(request.fault, request.backend)] if request.fault else [],
            "seed": request.seed,
            "check_memory": False,
        }

    def plan(self, request: RunRequest) -> Experiment:
        return read_experiment(self.document(request), backend=request.backend)

    def run(self, request: RunRequest) -> RunResult:
        """Return the result of *request*, which runs only the first time.

        Raise UsageError for invalid settings or an invalid workload.
        """
        if request not in self._done:
            dead_s = faults.DEAD_S[request.backend] if request.fault else None
            plan = self.plan(request)
            copied = apart(plan, request.copies) if request.copies else None
            before = state_of(copied.modules) if copied is not None else {}
            plan = plan if copied is None else replace(plan, algorithm=copied.algorithm)
            plan = replace(plan, algorithm=_drawing(plan, request.drawing)) if request.drawing else plan
            self._done[request] = run_plan(plan, dead_s)
            if copied is not None:
                self.changed[request] = changed(before, state_of(copied.modules))
        return self._done[request]


def _drawing(plan: Experiment, ranks: Sequence[int]) -> Callable[..., Any]:
    """Return the algorithm of *plan*, changed so that *ranks* also draw from global generators."""
    names = [plan.topology.workers[rank] for rank in ranks]

    @functools.wraps(plan.algorithm)
    async def algorithm(node: Any, replica: Any, **settings: Any) -> None:
        await plan.algorithm(DrawingTransport(node) if node.name in names else node, replica, **settings)

    return algorithm


def cluster(request: RunRequest) -> dict[str, Any]:
    """Return the topology of *request* as a block of an experiment, with workers n0, n1, ...

    A ring of one or two nodes becomes a line. Devices are equal and take 1 ms for any piece of
    work; in an uneven cluster the last device takes 4 ms. The first half of the nodes, rounded up,
    is at one site, and the others at another.
    """
    size, shape = request.size, request.shape
    make = {"star": star, "line": chain, "ring": ring if size > 2 else chain, "complete": complete, "islands": chain}
    device = {"flops": "1 PFLOP/s", "work_overhead": "1 ms"}
    document = copy.deepcopy(dict(make[shape](size, device=device, bandwidth="1 Gbps", latency="50 us").document))
    for rank in range(size):
        document["nodes"][f"n{rank}"]["site"] = "west" if 2 * rank < size else "east"
    if request.uneven:
        document["nodes"][f"n{size - 1}"]["straggler"] = {"kind": "constant", "factor": 4.0}
    if shape == "islands":
        document["links"] = document["links"][:-1]
    return document


def run_plan(plan: Experiment, dead_s: float | None = None, program: str = PROGRAM) -> RunResult:
    """Run *plan*; the nodes run *program*, which counts messages by default.

    A failed run is a result: only UsageError is raised.
    """
    options: dict[str, Any] = {"threads": 1} if plan.backend == "sim" else dict(SOCKETS_LIMITS)
    job = ClusterJob(
        names=plan.topology.workers,
        config_json=json.dumps(plan.document),
        seed=plan.seed,
        program=program,
        topology=plan.topology,
        time_s=plan.time_s,
        faults=plan.faults,
        worlds=plan.worlds,
        options=options if dead_s is None else {**options, "dead_s": dead_s},
    )
    remember(job.config_json, plan)
    try:
        with wall_limit(LIMIT_S):
            record = backend_named(plan.backend).run_cluster(job)
    except (TimeIsUp, AssertionError) as error:
        # An AssertionError means that the simulator's accounts are inconsistent: report it as a
        # failure.
        late = RunError(f"did not end within {LIMIT_S:g} s of wall time")
        nodes = [NodeRecord(rank, name) for rank, name in enumerate(plan.topology.workers)]
        return RunResult(plan, late if isinstance(error, TimeIsUp) else error, nodes, [None] * len(nodes), "", {}, [])
    names = names_of(plan) if any(node.weights for node in record.nodes) else []
    found = [
        None if node.weights is None else safetensors.torch.load(b"".join(node.weights.pieces()))
        for node in record.nodes
    ]
    weights = [None if tensors is None else [tensors[name] for name in names] for tensors in found]
    extra = record.extra
    doubts = doubts_of(record)
    return RunResult(
        plan, record.error, record.nodes, weights, record.trace_sha256, extra["lost"], extra["faults"], doubts
    )


def names_of(plan: Experiment) -> list[str]:
    """Return the names of the model's parameters."""
    return plan.workload.replica(0, len(plan.topology.workers), plan.seed, 1).names


def as_json(settings: Mapping[str, Any]) -> str:
    return json.dumps(settings, sort_keys=True)


@contextmanager
def wall_limit(seconds: float) -> Iterator[None]:
    """Interrupt the block after *seconds*, if this is the main thread of a system with alarms.

    A running simulator or event loop is asked to stop, as by Ctrl-C: an exception raised in the
    middle of its loop would lose a callback.
    """
    if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
        yield
        return

    rang = False

    def ring(number: int, frame: FrameType | None) -> None:
        nonlocal rang
        rang = True
        if not stop_innermost(number, frame):
            raise TimeIsUp

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    except KeyboardInterrupt:
        if rang:
            raise TimeIsUp from None
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def far_apart(found: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """Return the largest difference of two elements, relative to the largest expected element.

    Return infinity if the shapes differ or *found* is not finite.
    """
    if len(found) != len(expected):
        return float("inf")
    worst = 0.0
    for mine, other in zip(found, expected, strict=True):
        if mine.shape != other.shape or not bool(torch.isfinite(mine).all()):
            return float("inf")
        if mine.numel():
            scale = float(other.abs().max()) or 1.0
            worst = max(worst, float((mine - other).abs().max()) / scale)
    return worst
