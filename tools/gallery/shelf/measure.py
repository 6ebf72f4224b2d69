"""`python -m tools.gallery.shelf.measure`: measures the shelf of the README's picture.

The program needs root and Linux. Hosts are network namespaces joined by shaped links, as in
tools.netns. The program calibrates the shelf, predicts every algorithm on the calibrated topology,
and then runs it over TCP. It writes the curves to docs/figures/data.
"""

from __future__ import annotations

import json
import platform
import sys
import tempfile
from datetime import date
from pathlib import Path
from typing import Any

import yaml

import simcluster
from simcluster.results import Run, load_run
from simcluster.topology import load
from tests.support.root import ROOT
from tools.netns.fidelity import stall_s
from tools.netns.hosts import Hosts, hosts_of, missing
from tools.netns.scenarios import Network
from tools.netns.trial import launch, make_key

DATA = ROOT / "docs" / "figures" / "data" / "shelf.json"
WORKLOAD = {"path": f"{Path(__file__).with_name('digits.py')}:make_workload"}
SHELF = Network(
    "shelf",
    {"n0": 0.05, "n1": 0.05, "n2": 0.05, "n3": 0.1},
    (
        ("n0", "sw", "50 Mbps", "0 s"),
        ("n1", "sw", "50 Mbps", "0 s"),
        ("n2", "sw", "50 Mbps", "0 s"),
        ("n2", "n3", "20 Mbps", "3 ms"),
    ),
    ("sw",),
)
ALGORITHMS: dict[str, dict[str, Any]] = {
    "sync_ps": {"name": "sync_ps"},
    "all_reduce_dp": {"name": "all_reduce_dp"},
    "local_sgd": {"name": "local_sgd", "interval": 5},
}
STEPS, LOOK_EVERY = 60, 3
TRIES, STALL_S = 4, 0.02


def experiment(algorithm: str) -> dict[str, Any]:
    return {
        "name": f"shelf-{algorithm}",
        "topology": SHELF.document(),
        "algorithm": ALGORITHMS[algorithm],
        "workload": WORKLOAD,
        "stop": {"steps": STEPS},
        "evaluate_every": LOOK_EVERY,
    }


def curve(run: Run) -> list[list[float]]:
    """Return the points of a loss curve: [seconds, held-out loss] of each evaluation."""
    rows = run.metrics[run.metrics["name"] == "eval_loss"]
    return [[round(float(s), 4), round(float(loss), 4)] for s, loss in zip(rows["time_s"], rows["value"], strict=True)]


def _about(run: Run) -> dict[str, Any]:
    summary = run.summary
    known = {name: summary[name] for name in ("elapsed_s", "bytes_sent", "weights_sha256")}
    return known | {"curve": curve(run)}


def measure(folder: Path) -> dict[str, Any]:
    """Calibrate, predict and run. Return the curves and numbers that the picture shows."""
    key = make_key(folder)
    found: dict[str, Any] = {}
    with hosts_of(load(SHELF.document())) as hosts:
        topology, measured = folder / "shelf.yaml", folder / "measured.yaml"
        topology.write_text(yaml.safe_dump(SHELF.document(dict(hosts.addresses)), sort_keys=False))
        calibrate = ["calibrate", str(topology), "--out", str(measured), "--workload", WORKLOAD["path"]]
        launch(hosts, SHELF.nodes, key, *calibrate)
        print("calibrated", flush=True)
        for name in ALGORITHMS:
            plan = experiment(name)
            simulated = simcluster.run(plan, backend="sim", topology=measured, out=folder / f"{name}-sim", report=False)
            file = folder / f"{name}.yaml"
            file.write_text(yaml.safe_dump(plan, sort_keys=False))
            real = _undisturbed(hosts, key, ["run", str(file), "--backend", "sockets", "--topology", str(topology)])
            found[name] = {"predicted": _about(simulated), "measured": _about(real)}
            found[name]["predicted"]["interval_s"] = simulated.summary["elapsed_interval_s"]
            times = [found[name][kind]["elapsed_s"] for kind in ("predicted", "measured")]
            print(f"{name}: predicted {times[0]:.2f} s, measured {times[1]:.2f} s", flush=True)
    return found


def _undisturbed(hosts: Hosts, key: Path, command: list[str]) -> Run:
    """Run *command* until the machine does not disturb it, at most TRIES times.

    Return the least disturbed run. The disturbance of a run is the longest delay of a pause, as in
    tools.netns.fidelity, so the choice does not depend on the run's own time.
    """
    found: list[tuple[float, Run]] = []
    for _ in range(TRIES):
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "run"
            launch(hosts, SHELF.nodes, key, *command, "--out", str(out), "--no-report")
            run = load_run(out)
            found.append((stall_s(run, SHELF.nodes), run))
            # Metrics are read lazily, so read them before the directory is removed.
            assert not run.metrics.empty
        print(f"  {run.summary['elapsed_s']:.2f} s, stood still for {found[-1][0] * 1e3:.0f} ms", flush=True)
        if found[-1][0] <= STALL_S:
            break
    return min(found, key=lambda one: one[0])[1]


def main() -> None:
    if reason := missing():
        sys.exit(f"cannot measure: {reason}")
    with tempfile.TemporaryDirectory() as folder:
        runs = measure(Path(folder))
    system = f"{platform.system()} {platform.release().split('-')[0]}"
    content = {"measured_on": date.today().isoformat(), "system": system, "runs": runs}
    DATA.parent.mkdir(exist_ok=True)
    DATA.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(DATA.relative_to(ROOT))


if __name__ == "__main__":
    main()
