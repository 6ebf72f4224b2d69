"""Predicted against measured: scenarios on a real network, and simulated after its calibration.

Calibrations, runs and notes are stored in a directory and not made again, so an interrupted
comparison resumes, and more repeats can be added later.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml

import simcluster
from simcluster.results import Run, load_run
from simcluster.topology import load
from tools.netns.hosts import Hosts, hosts_of
from tools.netns.load import cpu_shares, cpu_times
from tools.netns.scenarios import ALGORITHMS, NETWORKS, SIZES, WORKLOAD, Network, Size, experiment
from tools.netns.trial import launch, make_key

REPEATS = 2

TRIES = 5
STALL_S = 0.1
STOLEN = 0.01
"""Limits on a run's longest stall and on the share of stolen CPU time, for an idle machine.

A run beyond a limit says nothing about the network, so it is repeated, up to TRIES runs in all. If
all are disturbed, the run with the least stolen time counts.
"""

OBSERVED = "n1"
"""The node with the steps that are measured. It is a worker in every algorithm."""

NOTES = "notes.json"


@dataclass(frozen=True)
class Outcome:
    """The results of one scenario: a predicted run, and several measured ones."""

    network: str
    algorithm: str
    size: str
    predicted: Run
    measured: tuple[Run, ...]

    @property
    def step_s(self) -> tuple[float, float]:
        """(predicted, measured) seconds per step. The measured value is the mean of all repeats."""
        return _step_s(self.predicted), fmean(self.steps_s)

    @property
    def run_s(self) -> tuple[float, float]:
        """(predicted, measured) seconds of the run.

        The measured value is the mean of all repeats.
        """
        return self.predicted.summary["elapsed_s"], fmean(self.runs_s)

    @property
    def steps_s(self) -> list[float]:
        """The measured seconds per step of each repeat."""
        return [_step_s(run) for run in self.measured]

    @property
    def runs_s(self) -> list[float]:
        """The measured seconds of each repeat of the run."""
        return [run.summary["elapsed_s"] for run in self.measured]

    @property
    def intervals(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The predicted intervals for the time of a step and of the run."""
        return self.predicted.summary["step_interval_s"], self.predicted.summary["elapsed_interval_s"]

    @property
    def errors(self) -> tuple[float, float]:
        """The errors of the predicted times of a step and of the run, relative to the measured
        ones.
        """
        (step, real_step), (run, real_run) = self.step_s, self.run_s
        return step / real_step - 1, run / real_run - 1


@dataclass
class Kept:
    """The results under one condition, stored in *folder*: runs, calibrations, and notes
    on both.
    """

    folder: Path

    def outcomes(self) -> list[Outcome]:
        """Return the outcomes of all scenarios that have a prediction and a measurement,
        in order.
        """
        found = []
        for network in NETWORKS:
            for size in SIZES:
                for algorithm in ALGORITHMS:
                    outcome = self.outcome(network, algorithm, size)
                    found += [outcome] if outcome is not None else []
        return found

    def outcome(self, network: Network, algorithm: str, size: Size) -> Outcome | None:
        """Return the outcome of a scenario, or None without a prediction or any measurement."""
        name = experiment(network, algorithm, size)["name"]
        real = [load_run(folder) for folder in sorted(self.folder.glob(f"{name}-real-*")) if is_run(folder)]
        predicted = self.folder / f"{name}-sim"
        if not real or not is_run(predicted):
            return None
        return Outcome(network.name, algorithm, size.words, load_run(predicted), tuple(real))

    @property
    def notes(self) -> dict[str, Any]:
        """Name of a note -> its value."""
        file = self.folder / NOTES
        return json.loads(file.read_text()) if file.is_file() else {}

    def note(self, name: str, value: Any) -> None:
        """Store *value* as the note *name*."""
        text = json.dumps(self.notes | {name: value}, indent=2)
        partial = self.folder / f".partial-{NOTES}"  # an interrupt must not leave a truncated file
        partial.write_text(text + "\n")
        partial.replace(self.folder / NOTES)


def is_run(folder: Path) -> bool:
    """Return whether *folder* has a complete run."""
    return (folder / "summary.json").is_file()


def compare_all(
    folder: Path,
    networks: Sequence[Network] = NETWORKS,
    algorithms: Sequence[str] = ALGORITHMS,
    sizes: Sequence[Size] = SIZES,
    repeats: int = REPEATS,
    say: Callable[[str], None] = lambda words: None,
    *,
    choosy: bool = True,
) -> Iterator[Outcome]:
    """Yield the outcome of every algorithm and size on every network, in order.

    Results in *folder* are not made again. Repeats are interleaved: all algorithms once, then all
    again. If *choosy*, runs that the machine disturbed are repeated.
    """
    kept = Kept(folder)
    key = make_key(folder)
    for network in networks:
        wanted = [(size, algorithm, repeat) for size in sizes for repeat in range(repeats) for algorithm in algorithms]
        if all(is_run(kept.folder / _real(network, *which)) for which in wanted):
            yield from _outcomes(kept, network, algorithms, sizes)
            continue
        with hosts_of(load(network.document())) as hosts:
            bench = Bench(kept, key, network, hosts, say, choosy)
            for size in sizes:
                measured = bench.calibrate(size)
                for algorithm in algorithms:
                    bench.predict(algorithm, size, measured)
                # Interleave repeats, so that a slow hour of the machine affects all algorithms.
                for repeat in range(repeats):
                    for algorithm in algorithms:
                        bench.measure(algorithm, size, repeat)
                yield from _outcomes(kept, network, algorithms, [size])


def _outcomes(kept: Kept, network: Network, algorithms: Sequence[str], sizes: Sequence[Size]) -> Iterator[Outcome]:
    for size in sizes:
        for algorithm in algorithms:
            outcome = kept.outcome(network, algorithm, size)
            assert outcome is not None, "it has just been run"
            yield outcome


def _real(network: Network, size: Size, algorithm: str, repeat: int) -> str:
    return f"{experiment(network, algorithm, size)['name']}-real-{repeat}"


@dataclass(frozen=True)
class Bench:
    """A running network, and the folder of its results."""

    kept: Kept
    key: Path
    network: Network
    hosts: Hosts
    say: Callable[[str], None]
    choosy: bool

    def calibrate(self, size: Size) -> Path:
        """Return the topology file from `simcluster calibrate`, which runs only once per network
        and size.
        """
        measured = self.kept.folder / f"{self.network.name}-{size.parameters}-measured.yaml"
        if not measured.is_file():
            self.say(f"{self.network.name}, {size.words}: calibrating")
            workload = ["--workload", f"{WORKLOAD}:make_workload", "--set", f"workload.parameters={size.parameters}"]
            before = cpu_times()
            self._launch("calibrate", str(self._topology()), "--out", str(measured), *workload)
            self.kept.note(measured.stem, {"cpu": cpu_shares(before, cpu_times()), "again": 0})
        return measured

    def predict(self, algorithm: str, size: Size, measured: Path) -> None:
        """Run one scenario in the simulator on the topology file *measured*."""
        plan = experiment(self.network, algorithm, size)
        simulated = self.kept.folder / f"{plan['name']}-sim"
        if not is_run(simulated):
            simcluster.run(plan, backend="sim", topology=measured, out=simulated, report=False)

    def measure(self, algorithm: str, size: Size, repeat: int) -> None:
        """Run one scenario on the network."""
        plan = experiment(self.network, algorithm, size)
        real = self.kept.folder / _real(self.network, size, algorithm, repeat)
        if is_run(real):
            return
        file = self._write(plan["name"], plan)
        self.say(f"{self.network.name}, {size.words}: {algorithm}, repeat {repeat + 1}")
        trial = self.kept.folder / "trial"
        places = ["--topology", str(self._topology()), "--out", str(trial), "--no-report"]
        best = self.kept.folder / "best"
        least = (inf, inf)
        for again in range(TRIES):
            before = cpu_times()
            self._launch("run", str(file), "--backend", "sockets", *places)
            cpu = cpu_shares(before, cpu_times())
            disturbed = cpu[1] > STOLEN or stall_s(load_run(trial), self.network.nodes) > STALL_S
            if not disturbed or cpu[1] < least[1]:  # the least disturbed run so far
                least = cpu
                shutil.rmtree(best, ignore_errors=True)
                trial.rename(best)
            note = {"cpu": least, "again": again}
            if not self.choosy or not disturbed:
                break
        self.kept.note(real.name, note)
        best.rename(real)

    def _topology(self) -> Path:
        """Write the topology file of the network before its calibration, and return its path."""
        return self._write(self.network.name, self.network.document(dict(self.hosts.addresses)))

    def _launch(self, *command: str) -> None:
        launch(self.hosts, self.network.nodes, self.key, *command)

    def _write(self, name: str, content: dict[str, Any]) -> Path:
        file = self.kept.folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump(content, sort_keys=False))
        return file


def stall_s(run: Run, nodes_s: Mapping[str, float]) -> float:
    """Return the longest time by which a computation exceeds its node's pause in *nodes_s*.

    Pauses have a constant length, so the machine stood still for the rest of the time.
    """
    names = list(nodes_s)
    return max(span.end_s - span.start_s - nodes_s[names[rank]] for rank, span in run.spans if span.kind == "compute")


def _step_s(run: Run) -> float:
    """Return the mean time between the ends of two steps of the observed worker."""
    metrics = run.metrics
    times = metrics[(metrics["node"] == OBSERVED) & (metrics["name"] == "loss")]["time_s"]
    return float(times.max() - times.min()) / (len(times) - 1)
