"""`make by-hand`: check that nodes started by hand end with the simulator's weights, bit for bit.

Every command runs in a separate process, and the environment has no variable named *_NUM_THREADS.
So code that forgets to limit its threads computes on all cores, and its bits differ. With
`--portable`, all nodes compute with portable kernels.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from simcluster_backends.sockets import generate_key, write_key

from tests.support.root import ROOT
from tests.support.socket_runs import GUARD_S, free_port

ALGORITHMS = ("sync_ps", "all_reduce_dp", "zero", "pipeline")
SIZES = ((64, 32), (512, 256), (1024, 512))
"""(hidden units, batch size).

With the last two, OpenMP splits matrix products among its threads.
"""
NODES = ("a", "b")
UNNEEDED = ("pandas", "plotly", "pyarrow", "defusedxml")
"""Packages that a node does not need, which are half of what pip installs: see docs/shelf.md."""


class Ended(NamedTuple):
    """Node -> hash of its weights, in the simulator and in the run started by hand; node -> what it said."""

    simulated: dict[str, str]
    real: dict[str, str]
    said: dict[str, str]


def experiment(algorithm: str, hidden: int, batch: int) -> dict[str, Any]:
    return {
        "name": "by-hand",
        "topology": {
            "nodes": {name: {"device": "raspberry-pi-5", "address": "127.0.0.1"} for name in NODES},
            "links": [{"between": list(NODES), "type": "ethernet-1g"}],
        },
        "algorithm": algorithm,
        "workload": {"name": "mnist_mlp", "hidden": hidden, "batch_size": batch},
        "stop": {"steps": 3},
    }


def both(folder: Path, algorithm: str, hidden: int, batch: int, *, portable: bool = False) -> Ended:
    """Run one experiment in the simulator, then with nodes started by hand.

    *folder* must be empty.
    """
    file = folder / "experiment.json"
    key = folder / "key"
    meeting = f"127.0.0.1:{free_port()}"
    file.write_text(json.dumps(experiment(algorithm, hidden, batch)))  # JSON is valid YAML
    run = ["run", str(file), "--no-report", *(["--option", "portable=true"] if portable else [])]
    write_key(key, generate_key())
    absent = folder / "absent"
    absent.mkdir()
    for name in UNNEEDED:
        (absent / f"{name}.py").write_text("raise ImportError('a node has none')\n")
    _wait(_begin(*run, "--out", str(folder / "sim")))
    at, patient = ["--key-file", str(key)], ["--option", f"start_s={GUARD_S:g}"]
    with ExitStack() as running:
        launcher = running.enter_context(
            _begin(*run, "--out", str(folder / "real"), "--backend", "sockets", "--rendezvous", meeting, *at, *patient)
        )
        nodes = [running.enter_context(_begin("node", name, "--join", meeting, *at, path=absent)) for name in NODES]
        try:
            _wait(launcher)
            said = {name: _wait(process) for name, process in zip(NODES, nodes, strict=True)}
        finally:
            for process in (launcher, *nodes):
                process.kill()
    return Ended(_weights(folder / "sim"), _weights(folder / "real"), said)


def _begin(*words: str, path: Path | None = None) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    command = [sys.executable, "-m", "simcluster", *words]
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def _wait(process: subprocess.Popen[str]) -> str:
    said, _ = process.communicate(timeout=GUARD_S)
    assert process.returncode == 0, said
    return said


def _weights(folder: Path) -> dict[str, str]:
    nodes = json.loads((folder / "summary.json").read_text())["nodes"]
    return {name: node["weights_sha256"] for name, node in nodes.items()}


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--portable", action="store_true", help="with --option portable=true")
    portable = parser.parse_args(words).portable
    differing = 0
    for algorithm in ALGORITHMS:
        for hidden, batch in SIZES:
            with tempfile.TemporaryDirectory(prefix="by-hand-") as folder:
                simulated, real, _ = both(Path(folder), algorithm, hidden, batch, portable=portable)
            differing += simulated != real
            verdict = "the same bits" if simulated == real else "OTHER BITS"
            hashes = ", ".join(f"{name} {sha256[:12]}" for name, sha256 in simulated.items())
            print(f"{algorithm:14} hidden {hidden:4}, batch {batch:3}: {verdict} ({hashes})", flush=True)
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
