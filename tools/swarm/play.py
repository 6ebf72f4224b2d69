"""Plays a case in the simulator and keeps the results, with independent counts of drawn batches."""

from __future__ import annotations

import logging
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simcluster_backends.sim import run as sim

import simcluster
from simcluster.errors import RunError, UsageError
from simcluster.experiment import execute
from simcluster.experiment.node import _experiment
from simcluster.experiment.read.experiment import Experiment
from simcluster.job import ClusterJob
from simcluster.runs.record import RunRecord
from simcluster.workloads.progress.ledger import Ledger
from tools.swarm.case import Case
from tools.swarm.disk import audited
from tools.swarm.generators import generator_states, stir
from tools.swarm.watchdog import Livelock, watched


@dataclass
class Counted:
    """Counts and observations of a run, independent of the library's own counts.

    A run that restarts has several attempts. By attempt, *draws* counts the batches drawn, *loaded*
    the ledgers loaded from a checkpoint, and *clusters* has the simulated clusters. *said* has
    errors that were only logged. *unsafe* has files that a power cut would have spoilt.
    *kept_generators* tells whether the caller's global generators are unchanged.
    """

    draws: list[int] = field(default_factory=list)
    loaded: list[int] = field(default_factory=list)
    joined: bool = False
    said: list[str] = field(default_factory=list)
    warned: list[str] = field(default_factory=list)
    unsafe: list[str] = field(default_factory=list)
    clusters: list[sim.SimCluster] = field(default_factory=list)
    kept_generators: bool = True


@dataclass
class Played:
    """A run that was played: its case, folder, record, error, experiment, and independent
    counts.
    """

    case: Case
    folder: Path
    error: BaseException | None
    record: RunRecord | None
    plan: Experiment | None
    counted: Counted
    summary: dict[str, Any] = field(default_factory=dict)

    @property
    def is_done(self) -> bool:
        return self.error is None

    @property
    def lost(self) -> dict[str, str]:
        return dict(self.summary.get("lost", {}))

    @property
    def happened(self) -> list[dict[str, Any]]:
        """The faults that began in any attempt, as in the summary."""
        return list(self.summary.get("faults", []))

    @property
    def losses(self) -> list[str]:
        """The kinds of all faults that may cost a node.

        Each is repeated for every time that it began.
        """
        mild = ("slow", "latency", "bandwidth", "loss")
        return [row["kind"] for row in self.happened if row["kind"] not in mild for _ in row["spells_s"]]

    def values(self, name: str) -> list[tuple[str, int, float]]:
        """Return (node, step, value) of each value of the metric *name*."""
        assert self.record is not None
        return [(m.node, m.step, m.value) for node in self.record.nodes for m in node.metrics if m.name == name]


def play(case: Case, folder: Path, resumed: Path | None = None, *, keeps_faults: bool = False) -> Played:
    """Run *case* in *folder*, which is emptied first.

    If *resumed* is not None, resume that run there.

    A resumed run has no faults unless it *keeps_faults*.
    """
    shutil.rmtree(folder, ignore_errors=True)
    counted = Counted()
    made = _Made()
    error = None
    # Two runs of a seed must agree even if their global generators differ.
    stir(f"{folder.name} {case.seed}")
    states = generator_states()
    with _listening(counted, made), audited(counted.unsafe), watched():
        try:
            if resumed is None:
                simcluster.run(case.document, out=folder, options=case.options, report=False)
            else:
                overrides = None if keeps_faults else {"faults": []}
                simcluster.resume(resumed, out=folder, overrides=overrides, options=case.options, report=False)
        except (Exception, Livelock) as failed:
            error = failed
    counted.kept_generators = generator_states() == states
    played = Played(case, folder, error, made.record, made.plan, counted)
    if (error is None or isinstance(error, RunError)) and (folder / "summary.json").is_file():
        played.summary = simcluster.load_run(folder).summary
    return played


def is_refused(played: Played) -> bool:
    """Return whether the run was refused with a UsageError before it wrote anything."""
    return isinstance(played.error, UsageError) and not played.folder.exists()


class _Ears(logging.Handler):
    """A log handler that collects errors, which might otherwise only be logged."""

    def __init__(self, counted: Counted) -> None:
        super().__init__(logging.ERROR)
        self._counted = counted

    def emit(self, record: logging.LogRecord) -> None:
        words = record.getMessage()
        if record.exc_info:
            words += f" ({record.exc_info[1]!r})"
        self._counted.said.append(words)


@dataclass
class _Made:
    """The experiment that a backend ran, and the record of the run."""

    record: RunRecord | None = None
    plan: Experiment | None = None


@contextmanager
def _listening(counted: Counted, made: _Made) -> Iterator[None]:
    """Within the block, count draws, keep records and clusters, and collect logged errors."""
    draw = Ledger.draw
    load = Ledger.load
    make = sim.SimCluster
    run_cluster, hints_of = sim.run_cluster, execute.hints_of

    class Kept(make):  # type: ignore[valid-type,misc]
        def __init__(self, *given: Any, **options: Any) -> None:
            super().__init__(*given, **options)
            counted.clusters.append(self)
            counted.draws.append(0)
            counted.loaded.append(0)

    def drawn(self: Ledger, number: int) -> None:
        counted.draws[-1] += 1
        counted.joined = counted.joined or self.joined
        draw(self, number)

    def loading(self: Ledger, notes: dict[str, Any]) -> None:
        load(self, notes)
        if counted.loaded:
            counted.loaded[-1] += 1

    def recorded(job: ClusterJob, *given: Any, **options: Any) -> RunRecord:
        made.plan = _experiment(job.config_json)
        made.record = run_cluster(job, *given, **options)
        return made.record

    ears = _Ears(counted)
    root, noise = logging.getLogger(), logging.getLogger("simcluster")
    level = noise.level
    root.addHandler(ears)
    noise.setLevel(logging.ERROR)
    Ledger.draw, Ledger.load = drawn, loading  # type: ignore[method-assign]
    sim.SimCluster, sim.run_cluster = Kept, recorded  # type: ignore[misc]
    execute.hints_of = lambda plan, record: []  # they simulate other runs
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
        counted.warned = [str(warning.message) for warning in caught]
    finally:
        Ledger.draw, Ledger.load = draw, load  # type: ignore[method-assign]
        sim.SimCluster, sim.run_cluster = make, run_cluster  # type: ignore[misc]
        execute.hints_of = hints_of
        root.removeHandler(ears)
        noise.setLevel(level)
