"""A model whose training state does not fit one process is trained by processes that each hold a part of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import simcluster

WORKLOAD = """
import os
import resource
from pathlib import Path

from torch import nn

from simcluster.workloads import Workload, adamw
from simcluster.workloads.models.mnist import load_mnist

limited = set()


def limit(room_bytes):
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    limit_bytes = int(status["VmData"].split()[0]) * 1024 + room_bytes
    resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, resource.getrlimit(resource.RLIMIT_DATA)[1]))


def deep(*, hidden: int) -> Workload:
    room_bytes = int(os.environ.get("ROOM_BYTES", 0))
    if room_bytes and os.getpid() not in limited:
        limited.add(os.getpid())
        limit(room_bytes)

    def model() -> nn.Module:
        layers = [nn.Linear(784, hidden), nn.ReLU()]
        for _ in range(13):
            layers += [nn.Linear(hidden, hidden), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(hidden, 10))

    train, test = load_mnist()
    return Workload(model, nn.functional.cross_entropy, train, adamw(0.001), 2, test=test)
"""
"""Gives every process that makes the workload, the launcher's included, ROOM_BYTES more than it has. RLIMIT_DATA
counts the memory that a process can write; RLIMIT_AS also counts addresses that threads reserve and do not use."""

HIDDEN = 1152
WEIGHTS_BYTES = 4 * (785 * HIDDEN + 13 * (HIDDEN + 1) * HIDDEN + 10 * (HIDDEN + 1))
"""72.8 MB."""

ROOM_BYTES = round(3.25 * WEIGHTS_BYTES)
"""Alone, AdamW holds weights, gradients and two means: 4 times the weights. One of four ranks holds a quarter of that,
and a layer or two, each a fourteenth of the weights. What a process needs to compute comes on top, and depends on the
machine: seen to fit were parts in 2.5 on one and not on another, and the whole in 4.5 on none."""


def experiment_of(folder: Path, algorithm: str, workers: int, hidden: int = HIDDEN) -> dict[str, Any]:
    (folder / "deep.py").write_text(WORKLOAD)
    return {
        "topology": {"generator": "star", "workers": workers, "bandwidth": "10 Gbps", "latency": "50 us"},
        "algorithm": algorithm,
        "workload": {"path": f"{folder / 'deep.py'}:deep", "hidden": hidden},
        "stop": {"steps": 2},
        "evaluate_every": 1,
        "check_memory": False,
    }


def limited(folder: Path, experiment: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    (folder / "limited.yaml").write_text(yaml.safe_dump(experiment))
    command = [sys.executable, "-m", "simcluster", "run", str(folder / "limited.yaml"), "--backend", "sockets"]
    environment = {**os.environ, "ROOM_BYTES": str(ROOM_BYTES)}
    command += ["--out", str(folder / "limited"), "--no-report"]
    return subprocess.run(command, capture_output=True, text=True, timeout=400, check=False, env=environment)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits the memory of a process by what /proc says of it")
def test_parts_fit_where_the_whole_does_not_and_end_with_its_weights(tmp_path: Path) -> None:
    experiment = experiment_of(tmp_path, "pipeline", 4)
    done = limited(tmp_path, experiment)
    assert done.returncode == 0, done.stderr[-2000:]
    simulated = simcluster.run(experiment, out=tmp_path / "sim", report=False)
    assert simcluster.load_run(tmp_path / "limited").summary["weights_sha256"] == simulated.summary["weights_sha256"]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits the memory of a process by what /proc says of it")
def test_one_process_alone_has_too_little_memory(tmp_path: Path) -> None:
    done = limited(tmp_path, experiment_of(tmp_path, "all_reduce_dp", 1))
    assert done.returncode != 0
    said = done.stderr + (tmp_path / "limited" / "logs" / "n0.log").read_text()
    assert "can't allocate memory" in said or "MemoryError" in said, said[-2000:]
