"""`python -m tools.gallery.pays.measure [REPEATS]`: measures the speed-up of experiments/pays.yaml on two hosts.

The program needs root, Linux and two idle cores. Hosts are network namespaces joined by a shaped
link, as in tools.netns, but they really compute, each on its own core. The program calibrates the
hosts, predicts the speed-up on the calibrated topology as `simcluster baseline` does, and then runs
the experiment on one host and on two in turn. It writes the medians to docs/figures/data if the prediction holds.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from simcluster.lab.explain.baseline import baseline
from simcluster.results import load_run
from simcluster.topology import load
from tests.support.root import ROOT
from tools.netns.hosts import Hosts, hosts_of, missing
from tools.netns.load import awake, cpu_times
from tools.netns.scenarios import Network
from tools.netns.trial import launch, make_key

DATA = ROOT / "docs" / "figures" / "data" / "pays.json"
EXPERIMENT = ROOT / "experiments" / "pays.yaml"
TWO = Network("two", {"n0": 0.0, "n1": 0.0}, (("n0", "n1", "1 Gbps", "0 s"),))
CORES = {"n0": 0, "n1": 1}
REPEATS, TRIES = 5, 4
STEPS = 200
LONG = {"stop.steps": STEPS, "evaluate_every": STEPS}
"""Enough steps that neither the first ones, which are slow, nor the evaluation decides the time."""

WITHIN = 0.05
"""Limit on the relative error of the predicted speed-up."""

OTHERS = 0.03
"""Limit on the cores' share that other processes take during a run. A run beyond it is repeated."""


@dataclass(frozen=True)
class Bench:
    """Two running hosts, and the folder of everything that is measured on them."""

    folder: Path
    hosts: Hosts
    key: Path
    batch_size: int

    def write(self, name: str, content: Any) -> Path:
        file = self.folder / name
        file.write_text(yaml.safe_dump(content, sort_keys=False))
        return file

    def calibrate(self, topology: Path) -> Path:
        """Return the topology file that `simcluster calibrate` writes for the workload."""
        measured = self.folder / "measured.yaml"
        workload = ["--workload", "gpt", "--set", f"workload.batch_size={self.batch_size}"]
        launch(self.hosts, TWO.nodes, self.key, "calibrate", str(topology), "--out", str(measured), *workload)
        return measured

    def elapsed_s(self, topology: Path, nodes: Mapping[str, float]) -> tuple[float, float]:
        """Return (seconds of a run over TCP, the share of the cores that other processes took).

        Of several disturbed runs, the least disturbed one counts.
        """
        batch_size = self.batch_size * len(TWO.nodes) // len(nodes)
        changes = [f"--set={key}={value}" for key, value in {**LONG, "workload.batch_size": batch_size}.items()]
        places = ["--topology", str(topology), *changes, "--no-report"]
        found: list[tuple[float, float]] = []
        while len(found) < TRIES and (not found or found[-1][1] > OTHERS):
            out = self.folder / f"run-{len(list(self.folder.glob('run-*')))}"
            before, own_before_s = cpu_times(), _own_s()
            launch(
                self.hosts, nodes, self.key, "run", str(EXPERIMENT), "--backend", "sockets", *places, "--out", str(out)
            )
            used, stolen, total = (b - a for a, b in zip(before, cpu_times(), strict=True))
            others = max(0.0, used + stolen - (_own_s() - own_before_s)) / total
            found.append((float(load_run(out).summary["elapsed_s"]), others))
        return min(found, key=lambda one: one[1])


def _own_s() -> float:
    """Return the CPU time of all ended children of this process, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(folder: Path, repeats: int) -> dict[str, Any]:
    """Calibrate, predict, and run on one host and on two in turn. Return what the picture shows."""
    plan = yaml.safe_load(EXPERIMENT.read_text())
    with hosts_of(load(TWO.document())) as plain, awake():
        bench = Bench(folder, replace(plain, cores=CORES), make_key(folder), plan["workload"]["batch_size"])
        document = TWO.document(dict(plain.addresses))
        two = bench.write("two.yaml", document)
        one = bench.write("one.yaml", {"name": "one", "nodes": {"n0": document["nodes"]["n0"]}, "links": []})
        calibrated = bench.calibrate(two)
        predicted = baseline(EXPERIMENT, topology=calibrated, node="n0", out=folder / "predicted", overrides=LONG)
        print(f"predicted: {predicted.alone_s:.2f} s alone, {predicted.together_s:.2f} s together", flush=True)
        found: dict[str, list[tuple[float, float]]] = {"alone": [], "together": []}
        for _ in range(repeats):
            # Interleave, so that a slow hour of the machine affects both.
            found["alone"].append(bench.elapsed_s(one, {"n0": 0.0}))
            found["together"].append(bench.elapsed_s(two, TWO.nodes))
            print(
                *(f"{name} {runs[-1][0]:.2f} s (others {runs[-1][1]:.1%})" for name, runs in found.items()), flush=True
            )
    return {
        "predicted": {"alone_s": predicted.alone_s, "together_s": predicted.together_s},
        "measured": {f"{name}_s": median(time_s for time_s, _ in runs) for name, runs in found.items()},
        "others": max(others for runs in found.values() for _, others in runs),
        "repeats": repeats,
    }


def speed_up(times: Mapping[str, float]) -> float:
    return times["alone_s"] / times["together_s"]


def main() -> None:
    if reason := missing():
        sys.exit(f"cannot measure: {reason}")
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else REPEATS
    with tempfile.TemporaryDirectory() as folder:
        content = {"measured_on": date.today().isoformat(), **measure(Path(folder), repeats)}
    predicted, measured = speed_up(content["predicted"]), speed_up(content["measured"])
    print(f"speed-up: predicted {predicted:.3f}, measured {measured:.3f}, off by {predicted / measured - 1:+.1%}")
    if abs(predicted / measured - 1) > WITHIN:
        sys.exit(f"more than {WITHIN:.0%} off; other processes took up to {content['others']:.1%} of the cores")
    DATA.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
