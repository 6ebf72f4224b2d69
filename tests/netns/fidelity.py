"""Predicted against measured: every scenario on a real network and, after a calibration of it, in the simulator.

This file knows the order of the comparison. It must not know how hosts are made, nor how a report is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

import simcluster
from simcluster.results.folder import Run, load_run
from simcluster.topology import load
from tests.netns.hosts import Hosts, hosts_of
from tests.netns.scenarios import ALGORITHMS, NETWORKS, SIZES, WORKLOAD, Network, Size, experiment
from tests.netns.trial import launch, make_key

TRIES, STALL_S = 3, 0.1
"""A run in which the machine stood still for so long says nothing of the network, and is made again."""

OBSERVED = "n1"
"""Whose steps are timed: a worker under every algorithm."""


@dataclass(frozen=True)
class Outcome:
    """One scenario's seconds: of the median step and of the whole run, predicted and measured; and both runs."""

    network: str
    algorithm: str
    size: str
    predicted: Run
    measured: Run

    @property
    def step_s(self) -> tuple[float, float]:
        return _step_s(self.predicted), _step_s(self.measured)

    @property
    def run_s(self) -> tuple[float, float]:
        return self.predicted.summary["elapsed_s"], self.measured.summary["elapsed_s"]

    @property
    def errors(self) -> tuple[float, float]:
        """Of the step and of the run, relative to what was measured."""
        (step, real_step), (run, real_run) = self.step_s, self.run_s
        return step / real_step - 1, run / real_run - 1


def compare_all(
    folder: Path,
    networks: Sequence[Network] = NETWORKS,
    algorithms: Sequence[str] = ALGORITHMS,
    sizes: Sequence[Size] = SIZES,
    say: Callable[[str], None] = lambda words: None,
) -> Iterator[Outcome]:
    """Every algorithm and size on every network, in order. Run folders and topologies are left in *folder*."""
    key = make_key(folder)
    for network in networks:
        with hosts_of(load(network.document())) as hosts:
            bench = Bench(folder, key, network, hosts)
            for size in sizes:
                say(f"{network.name}, {size.words}: calibrating")
                measured = bench.calibrate(size)
                for algorithm in algorithms:
                    say(f"{network.name}, {size.words}: {algorithm}")
                    yield bench.compare(algorithm, size, measured)


@dataclass(frozen=True)
class Bench:
    """A network that is up, and where its files go."""

    folder: Path
    key: Path
    network: Network
    hosts: Hosts

    def calibrate(self, size: Size) -> Path:
        """The topology file that `simcluster calibrate` writes."""
        measured = self.folder / f"{self.network.name}-{size.parameters}-measured.yaml"
        workload = ["--workload", f"{WORKLOAD}:make_workload", "--set", f"workload.parameters={size.parameters}"]
        self._launch("calibrate", str(self._topology()), "--out", str(measured), *workload)
        return measured

    def compare(self, algorithm: str, size: Size, measured: Path) -> Outcome:
        """Runs one scenario on the network, and in the simulator on the *measured* topology."""
        plan = experiment(self.network, algorithm, size)
        file = self._write(plan["name"], plan)
        real, simulated = self.folder / f"{plan['name']}-sockets", self.folder / f"{plan['name']}-sim"
        places = ["--topology", str(self._topology()), "--out", str(real), "--no-report"]
        for _ in range(TRIES):
            self._launch("run", str(file), "--backend", "sockets", *places)
            if stall_s(load_run(real), self.network.nodes) < STALL_S:
                break
        predicted = simcluster.run(plan, backend="sim", topology=measured, out=simulated, report=False)
        return Outcome(self.network.name, algorithm, size.words, predicted, load_run(real))

    def _topology(self) -> Path:
        """As it was built: what somebody would write down who has measured nothing."""
        return self._write(self.network.name, self.network.document(dict(self.hosts.addresses)))

    def _launch(self, *command: str) -> None:
        launch(self.hosts, self.network.nodes, self.key, *command)

    def _write(self, name: str, content: dict[str, Any]) -> Path:
        file = self.folder / f"{name}.yaml"
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
