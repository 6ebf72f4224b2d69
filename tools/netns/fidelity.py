"""Predicted against measured: every scenario on a real network and, after a calibration of it, in the simulator.

Everything is kept in a directory: calibrations, run folders, notes. What is there is not made again, so a comparison
that was interrupted resumes, and more repeats can be added.
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

TRIES, STALL_S, STOLEN = 5, 0.1, 0.01
"""On an idle machine a run is made again if the machine stood still for so long, or if the host of virtual machines
took such a share of the CPU time away: it says nothing of the network. Of runs that are all disturbed that counts of
which the least was stolen."""

OBSERVED = "n1"
"""Whose steps are timed: a worker under every algorithm."""

NOTES = "notes.json"


@dataclass(frozen=True)
class Outcome:
    """One scenario: the run as predicted, and as measured several times."""

    network: str
    algorithm: str
    size: str
    predicted: Run
    measured: tuple[Run, ...]

    @property
    def step_s(self) -> tuple[float, float]:
        """(predicted, measured) seconds of a step, the mean of all repeats."""
        return _step_s(self.predicted), fmean(self.steps_s)

    @property
    def run_s(self) -> tuple[float, float]:
        """(predicted, measured) seconds of the run, the mean of all repeats."""
        return self.predicted.summary["elapsed_s"], fmean(self.runs_s)

    @property
    def steps_s(self) -> list[float]:
        """Measured seconds of a step, by repeat."""
        return [_step_s(run) for run in self.measured]

    @property
    def runs_s(self) -> list[float]:
        """Measured seconds of the run, by repeat."""
        return [run.summary["elapsed_s"] for run in self.measured]

    @property
    def intervals(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Of the step and of the run."""
        return self.predicted.summary["step_interval_s"], self.predicted.summary["elapsed_interval_s"]

    @property
    def errors(self) -> tuple[float, float]:
        """Of the step and of the run, relative to what was measured."""
        (step, real_step), (run, real_run) = self.step_s, self.run_s
        return step / real_step - 1, run / real_run - 1


@dataclass
class Kept:
    """Contents of *folder*, under one condition: run folders and calibrations by name, notes about them."""

    folder: Path

    def outcomes(self) -> list[Outcome]:
        """Return every scenario that has a prediction and a measurement, in order."""
        found = []
        for network in NETWORKS:
            for size in SIZES:
                for algorithm in ALGORITHMS:
                    outcome = self.outcome(network, algorithm, size)
                    found += [outcome] if outcome is not None else []
        return found

    def outcome(self, network: Network, algorithm: str, size: Size) -> Outcome | None:
        """Return the scenario as far as it was run."""
        name = experiment(network, algorithm, size)["name"]
        real = [load_run(folder) for folder in sorted(self.folder.glob(f"{name}-real-*")) if is_run(folder)]
        predicted = self.folder / f"{name}-sim"
        if not real or not is_run(predicted):
            return None
        return Outcome(network.name, algorithm, size.words, load_run(predicted), tuple(real))

    @property
    def notes(self) -> dict[str, Any]:
        """Notes by name."""
        file = self.folder / NOTES
        return json.loads(file.read_text()) if file.is_file() else {}

    def note(self, name: str, value: Any) -> None:
        """Keep *value* as the note *name*."""
        text = json.dumps(self.notes | {name: value}, indent=2)
        partial = self.folder / f".partial-{NOTES}"
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
    """Every algorithm and size on every network, in order; what *folder* has already is not made again.

    Repeats are interleaved: all algorithms once, then again. *choosy*: a run that the machine disturbed is made again.
    """
    kept = Kept(folder)
    key = make_key(folder)
    for network in networks:
        wanted = [(size, algorithm, repeat) for size in sizes for repeat in range(repeats) for algorithm in algorithms]
        if all(is_run(kept.folder / _real(network, *which)) for which in wanted):
            yield from _told(kept, network, algorithms, sizes)
            continue
        with hosts_of(load(network.document())) as hosts:
            bench = Bench(kept, key, network, hosts, say, choosy)
            for size in sizes:
                measured = bench.calibrate(size)
                for algorithm in algorithms:
                    bench.predict(algorithm, size, measured)
                for repeat in range(repeats):
                    for algorithm in algorithms:
                        bench.measure(algorithm, size, repeat)
                yield from _told(kept, network, algorithms, [size])


def _told(kept: Kept, network: Network, algorithms: Sequence[str], sizes: Sequence[Size]) -> Iterator[Outcome]:
    for size in sizes:
        for algorithm in algorithms:
            outcome = kept.outcome(network, algorithm, size)
            assert outcome is not None, "it has just been run"
            yield outcome


def _real(network: Network, size: Size, algorithm: str, repeat: int) -> str:
    return f"{experiment(network, algorithm, size)['name']}-real-{repeat}"


@dataclass(frozen=True)
class Bench:
    """A network that is up, and where its files go."""

    kept: Kept
    key: Path
    network: Network
    hosts: Hosts
    say: Callable[[str], None]
    choosy: bool

    def calibrate(self, size: Size) -> Path:
        """Return the topology file that `simcluster calibrate` writes; one that is there already stays."""
        measured = self.kept.folder / f"{self.network.name}-{size.parameters}-measured.yaml"
        if not measured.is_file():
            self.say(f"{self.network.name}, {size.words}: calibrating")
            workload = ["--workload", f"{WORKLOAD}:make_workload", "--set", f"workload.parameters={size.parameters}"]
            before = cpu_times()
            self._launch("calibrate", str(self._topology()), "--out", str(measured), *workload)
            self.kept.note(measured.stem, {"cpu": cpu_shares(before, cpu_times()), "again": 0})
        return measured

    def predict(self, algorithm: str, size: Size, measured: Path) -> None:
        """Run one scenario in the simulator on the *measured* topology."""
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
        best, least = self.kept.folder / "best", (inf, inf)
        for again in range(TRIES):
            before = cpu_times()
            self._launch("run", str(file), "--backend", "sockets", *places)
            cpu = cpu_shares(before, cpu_times())
            disturbed = cpu[1] > STOLEN or stall_s(load_run(trial), self.network.nodes) > STALL_S
            if not disturbed or cpu[1] < least[1]:
                least = cpu
                shutil.rmtree(best, ignore_errors=True)
                trial.rename(best)
            note = {"cpu": least, "again": again}
            if not self.choosy or not disturbed:
                break
        self.kept.note(real.name, note)
        best.rename(real)

    def _topology(self) -> Path:
        """As it was built: what a user would write down who has measured nothing."""
        return self._write(self.network.name, self.network.document(dict(self.hosts.addresses)))

    def _launch(self, *command: str) -> None:
        launch(self.hosts, self.network.nodes, self.key, *command)

    def _write(self, name: str, content: dict[str, Any]) -> Path:
        file = self.kept.folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump(content, sort_keys=False))
        return file


def stall_s(run: Run, nodes_s: Mapping[str, float]) -> float:
    """By how much any piece of work took longer than its node's accelerator takes, which is in *nodes_s*.

    The device is a pause, always of the same length: whatever it takes longer, this machine stood still.
    """
    names = list(nodes_s)
    return max(span.end_s - span.start_s - nodes_s[names[rank]] for rank, span in run.spans if span.kind == "compute")


def _step_s(run: Run) -> float:
    """The mean time between two steps of the observed worker."""
    metrics = run.metrics
    times = metrics[(metrics["node"] == OBSERVED) & (metrics["name"] == "loss")]["time_s"]
    return float(times.max() - times.min()) / (len(times) - 1)
