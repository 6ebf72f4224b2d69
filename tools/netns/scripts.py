"""`python -m tools.netns.scripts`: scripts on a real network, compared with simulations.

Real runs use gloo or the sockets backend; the simulator predicts both. Every network is calibrated
once. Runs are stored and not made again. Since all hosts share the cores of one machine, gradients
take an accelerator's time (`on_accelerator.py`). Other computations are measured as CPU time
(`cost: measured`), and each host has a separate core.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import yaml

import simcluster
from simcluster.results import Run, load_run
from simcluster.runs.calls import step_s
from simcluster.topology import load
from tests.support.root import ROOT
from tools.netns.fidelity import is_run
from tools.netns.hosts import Hosts, hosts_of, missing
from tools.netns.scenarios import Network
from tools.netns.trial import PATIENCE_S, SIMCLUSTER, launch, make_key
from tools.tables import TABLES, write

SCRIPTS = {
    "ddp_mlp": ("--steps", 12, "--hidden", 8192, "--lr", 0.001),
    "fsdp_meta": ("--steps", 12, "--width", 256),
    "gpt_cuda": ("--device", "cpu", "--dtype", "float32", "--steps", 12, "--width", 256, "--batch", 1, "--length", 32),
    "collectives": ("--numbers", 2_400_000),
}
"""Script -> its arguments. Messages are large enough for a slow link to matter; runs are short."""

RATES = ("50 Mbps", "200 Mbps", "1 Gbps")
NODES = ("n0", "n1")
SCHEDULES = {"torch": "gloo", "sockets": "own"}
"""Backend -> its schedules of collectives."""

KEPT = ROOT / "runs" / "fidelity-scripts"
WRAPPER = Path(__file__).with_name("on_accelerator.py")
PORT = 52301
UNPACED = dict.fromkeys(NODES, 0.0)


def own_cores() -> list[int]:
    """Return a core for each host, or none if this machine has too few."""
    cores = sorted(os.sched_getaffinity(0))
    return cores[: len(NODES)] if len(cores) >= len(NODES) else []


def network_of(rate: str) -> Network:
    """Return a network of NODES that are connected to a switch by links of *rate*."""
    links = tuple((node, "sw", rate, "0 s") for node in NODES)
    return Network(rate.replace(" ", "").lower(), UNPACED, links, ("sw",))


def time_of(run: Run) -> float:
    """Return the median time of a step or, if the script has no optimizer, between barriers."""
    found = step_s(run.calls)
    if found is not None:
        return found
    ends_s = [span.end_s for rank, span in run.calls if rank == 0 and span.tag == "barrier all" and span.kind == "call"]
    return median(later - earlier for earlier, later in itertools.pairwise(ends_s))


@dataclass(frozen=True)
class Bench:
    """A running network, and the folder of its results."""

    folder: Path
    network: Network
    hosts: Hosts

    def calibrate(self) -> Path:
        """Return the topology file from `simcluster calibrate`, which runs only once per
        network.
        """
        measured = self.folder / f"{self.network.name}-measured.yaml"
        if not measured.is_file():
            launch(
                self.hosts, UNPACED, make_key(self.folder), "calibrate", str(self._topology()), "--out", str(measured)
            )
        return measured

    def predict(self, script: str, backend: str, measured: Path) -> Run:
        """Run *script* in the simulator, with the schedules of *backend*."""
        out = self.folder / f"{self.network.name}-{script}-{backend}-sim"
        if not is_run(out):
            experiment = _experiment(script)
            experiment["script"]["schedules"] = SCHEDULES[backend]
            simcluster.run(experiment, topology=measured, backend="sim", out=out, report=False)
        return load_run(out)

    def measure(self, script: str, backend: str, repeat: int) -> Run:
        """Run *script* on the network."""
        out = self.folder / f"{self.network.name}-{script}-{backend}-{repeat}"
        if is_run(out):
            return load_run(out)
        experiment = self.folder / f"{script}.yaml"
        experiment.write_text(yaml.safe_dump(_experiment(script)))
        command = ["run", str(experiment), "--topology", str(self._topology()), "--backend", backend]
        command += ["--out", str(out), "--no-report"]
        if backend == "sockets":
            launch(self.hosts, UNPACED, make_key(self.folder), *command)
        else:
            self._launch_like_torchrun(command)
        return load_run(out)

    def _launch_like_torchrun(self, command: list[str]) -> None:
        """Run *command* on every node, each with its rank. Raise RuntimeError if rank 0 fails."""
        meeting = {"MASTER_ADDR": self.hosts.addresses[NODES[0]], "MASTER_PORT": str(PORT), "GLOO_SOCKET_IFNAME": "lo"}
        with ExitStack() as stack:
            started = []
            for rank, name in enumerate(NODES):
                # gloo takes the first address of the loopback device, so remove 127.0.0.1: then the
                # host's address is the first one.
                shell = ["sh", "-c", 'ip address del 127.0.0.1/8 dev lo 2>&-; exec "$@"', "sh"]
                process = subprocess.Popen(
                    self.hosts.command(name, *shell, *SIMCLUSTER, *command),
                    cwd=ROOT, env={**os.environ, **meeting, "RANK": str(rank), "WORLD_SIZE": str(len(NODES))},
                    stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                )  # fmt: skip
                stack.callback(process.communicate)
                stack.callback(process.kill)
                started.append(process)
            _, said = started[0].communicate(timeout=PATIENCE_S)
            for process in started[1:]:
                process.communicate(timeout=PATIENCE_S)
        if started[0].returncode:
            raise RuntimeError(f"simcluster {' '.join(command)}: {said.strip()}")

    def _topology(self) -> Path:
        file = self.folder / f"{self.network.name}.yaml"
        file.write_text(yaml.safe_dump(self.network.document(dict(self.hosts.addresses)), sort_keys=False))
        return file


def _experiment(script: str) -> dict[str, Any]:
    arguments = [str(ROOT / "experiments" / "scripts" / f"{script}.py"), *SCRIPTS[script]]
    return {"name": script, "script": {"file": str(WRAPPER), "args": arguments, "cost": "measured"}}


@dataclass(frozen=True)
class Row:
    """The times of a step of *script* on one network: predicted and measured, by backend."""

    script: str
    rate: str
    predicted_s: dict[str, float]
    measured_s: dict[str, list[float]]

    def error(self, backend: str) -> float:
        """Return the error of the prediction for *backend*, relative to the median
        measured time.
        """
        return self.predicted_s[backend] / median(self.measured_s[backend]) - 1


def compare_all(folder: Path, rates: list[str], scripts: list[str], repeats: int) -> Iterator[Row]:
    """Yield a row for each script on each network. Runs of the backends alternate."""
    for rate in rates:
        network = network_of(rate)
        with hosts_of(load(network.document())) as hosts:
            bench = Bench(folder, network, replace(hosts, cores=dict(zip(NODES, own_cores(), strict=False))))
            measured = bench.calibrate()
            for script in scripts:
                predicted_s = {backend: time_of(bench.predict(script, backend, measured)) for backend in SCHEDULES}
                found: dict[str, list[float]] = {backend: [] for backend in SCHEDULES}
                for repeat in range(repeats):
                    for backend in SCHEDULES:
                        found[backend].append(time_of(bench.measure(script, backend, repeat)))
                yield Row(script, rate, predicted_s, found)


COLUMNS = (
    *("script", "network"),
    *(
        name
        for backend in SCHEDULES
        for name in (f"predicted for {backend}, ms", f"{backend}, ms", f"{backend} off by")
    ),
)


def cells(row: Row) -> list[str]:
    """Return the cells of a row: for each backend, the predicted and measured times, and
    the error.
    """
    found = [row.script, row.rate]
    for backend in SCHEDULES:
        times_s = (row.predicted_s[backend], median(row.measured_s[backend]))
        found += [*(f"{time_s * 1e3:.1f}" for time_s in times_s), f"{row.error(backend):+.1%}"]
    return found


def summary(rows: list[Row]) -> str:
    """Return a sentence with the median and the worst error on each backend."""
    parts = []
    for backend in SCHEDULES:
        errors = [abs(row.error(backend)) for row in rows]
        parts.append(f"{backend}: median error {median(errors):.1%}, worst {max(errors):.1%}")
    return "; ".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.netns.scripts", description=__doc__)
    parser.add_argument("--script", action="append", choices=SCRIPTS, help="only these")
    parser.add_argument("--rate", action="append", choices=RATES, help="only these")
    parser.add_argument("--repeats", type=int, default=2, help="measured runs of each")
    parser.add_argument("--fresh", action="store_true", help="remove earlier results, and start over")
    parser.add_argument("--keep", type=Path, default=KEPT, help="results in this directory are not made again")
    arguments = parser.parse_args()
    if reason := missing():
        print(f"skipped: {reason}")
        return
    if arguments.fresh:
        shutil.rmtree(arguments.keep, ignore_errors=True)
    arguments.keep.mkdir(parents=True, exist_ok=True)
    rates = arguments.rate or list(RATES)
    scripts = arguments.script or list(SCRIPTS)
    rows = []
    for row in compare_all(arguments.keep, rates, scripts, arguments.repeats):
        rows.append(row)
        print(", ".join(cells(row)), flush=True)
    if not arguments.rate and not arguments.script:
        write(TABLES / "fidelity-scripts.csv", [COLUMNS, *map(cells, rows)])
    print(summary(rows))


if __name__ == "__main__":
    main()
