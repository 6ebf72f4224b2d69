"""Checks the accelerator of this machine: `python -m tools.accelerator [cuda|mps]`.

The stand-in of the tests shows that no tensor is in the wrong place. Only a real device shows that its kernels, streams
and generators do what the stand-in promises. One line per check, exit code 1 if one fails.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

import simcluster
from simcluster.algorithms import ALGORITHMS
from simcluster.compute import HOST
from simcluster.runs.comparison.compare import RunPair
from simcluster.topology import load
from tests.core.compute.test_algorithms_on_a_device import trained, workload

KIND = sys.argv[1] if len(sys.argv) > 1 else "cuda"
TOLERANCE = 1e-3  # as `simcluster compare` judges final weights
ON_SOCKETS = ("all_reduce_dp", "sync_ps", "edp", "local_sgd", "zero", "pipeline", "d_psgd")

ORDER_DECIDES = ("edp",)
"""Algorithms whose weights depend on which message comes first: real nodes need not repeat the simulator's order."""


def experiment(algorithm: str, **changes: Any) -> dict[str, Any]:
    card = {"kind": KIND, "flops": "14 TFLOP/s"}
    nodes = {name: {"device": "x86-laptop", "compute": KIND, "accelerator": card} for name in ("a", "b")}
    links = [{"between": [name, "sw"], "type": "ethernet-1g"} for name in nodes]
    return {
        "name": algorithm,
        "topology": {"name": "two", "nodes": {**nodes, "sw": {"kind": "switch"}}, "links": links},
        "algorithm": {"name": algorithm},
        "workload": {"name": "mnist_mlp"},
        "stop": {"steps": 40},
        "evaluate_every": 20,
        "seed": 5,
    } | changes


def distance(one: list[Any], other: list[Any]) -> float:
    """Return the norm of the difference of all weights, as a part of the norm of *one*."""
    pairs = [
        (a.detach().cpu().double(), b.detach().cpu().double())
        for left, right in zip(one, other, strict=True)
        for a, b in zip(left.parameters, right.parameters, strict=True)
    ]
    difference = sum(float((a - b).square().sum()) for a, b in pairs) ** 0.5
    return float(difference / sum(float(a.square().sum()) for a, _ in pairs) ** 0.5)


def check_algorithm(name: str, **settings: Any) -> str:
    device = torch.device(KIND, 0)
    host, _ = trained(name, workload(), HOST, **settings)
    away, does = trained(name, workload(), device, **settings)
    again, does_again = trained(name, workload(), device, **settings)
    assert [one.weights_sha256() for one in away] == [one.weights_sha256() for one in again], "two runs differ"
    assert does == does_again, "two runs send unlike messages"
    apart = distance(host, away)
    assert apart <= TOLERANCE, f"the weights are {apart:.2e} apart"
    return f"weights {apart:.1e} from the CPU's"


def check_nodes(name: str, backend: str, folder: Path) -> str:
    source = experiment(name)
    simulated = simcluster.run(source, out=folder / "sim", report=False)
    real = simcluster.run(source, backend=backend, out=folder / "real", report=False)
    devices = [node["numerics"]["device"] for node in real.summary["nodes"].values()]
    assert all(one.startswith(KIND) for one in devices), devices
    for key in ("bytes_sent", "messages_sent", "steps"):
        assert simulated.summary[key] == real.summary[key], key
    judged = RunPair(simulated, real).kernels
    assert judged is not None
    assert judged.within or name in ORDER_DECIDES, judged
    return f"{devices[0]}, accuracy {real.summary['accuracy']}, weights {judged.difference:.1e} from the simulator's"


def check_checkpoint(folder: Path) -> str:
    source = experiment("sync_ps", checkpoint={"every": 10})
    whole = simcluster.run(source, backend="sockets", out=folder / "whole", report=False)
    longer = simcluster.resume(whole.folder, step=20, backend="sockets", out=folder / "longer", report=False)
    assert longer.summary["weights_sha256"] == whole.summary["weights_sha256"]
    return "20 steps and 20 more end with the weights of 40"


def check_prediction(folder: Path) -> str:
    def command(*words: str) -> None:
        subprocess.run([sys.executable, "-m", "simcluster", *words], check=True)

    folder.mkdir()
    measured = str(folder / "measured.yaml")
    command("calibrate", "this-machine", "--compute", KIND, "--out", measured)
    on = ["run", "experiments/quickstart.yaml", "--topology", measured, "--set", "stop.steps=1000"]
    for backend in ("sim", "sockets"):
        command(*on, "--set", "evaluate_every=1000", "--backend", backend, "--out", str(folder / backend))
    command("compare", str(folder / "sim"), str(folder / "sockets"))
    nodes = load(measured).document["nodes"]
    found = {name: node["compute"] for name, node in nodes.items() if "compute" in node}
    assert found
    assert all(one.startswith(KIND) for one in found.values()), found
    return "printed above"


def checks(folder: Path) -> Iterator[tuple[str, Callable[[], str]]]:
    for name in ALGORITHMS:
        yield f"{name} in one process", lambda name=name: check_algorithm(name)
    for backend in ("sockets", "torch"):
        for name in ON_SOCKETS:
            where = folder / backend / name
            yield f"{name} on {backend}", lambda name=name, to=backend, where=where: check_nodes(name, to, where)
    yield "a checkpoint", lambda: check_checkpoint(folder / "checkpoint")
    yield "a prediction", lambda: check_prediction(folder / "prediction")


def main() -> int:
    """Run every check and return the exit code."""
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        for name, check in checks(Path(folder)):
            start = time.monotonic()
            try:
                says = check()
            except Exception as error:
                traceback.print_exc(limit=-2)
                failed.append(name)
                says = f"FAILED: {str(error)[:300]}"
            print(f"{name}: {says} ({time.monotonic() - start:.1f} s)", flush=True)
    print(f"{len(failed)} failed" + "".join(f"\n  {name}" for name in failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
