"""Training on real nodes that share one device, against the simulator on the CPU."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import torch

import simcluster
from simcluster.runs.comparison.compare import TOLERANCE, RunPair
from simcluster.topology import load
from tools.accelerator_parts.context import PartContext
from tools.accelerator_parts.rows import Row, Skipped, measured

FOUR = ("all_reduce_dp", "sync_ps", "local_sgd", "zero")
"""Algorithms that send weights, gradients or shards, with results that no order of messages decides."""

STEPS = 40
COMPARED = ("bytes_sent", "messages_sent", "steps")
PREDICTED_STEPS = {"cuda": 500, "mps": 500, "cpu": 200}


def experiment(algorithm: str, devices: tuple[str, str], **changes: Any) -> dict[str, Any]:
    """Return an experiment on two nodes, which compute on *devices*."""
    nodes: dict[str, dict[str, Any]] = {}
    for name, device in zip("ab", devices, strict=True):
        nodes[name] = {"device": "x86-laptop", "compute": device}
        if device != "cpu":
            nodes[name]["accelerator"] = {"kind": device.partition(":")[0], "flops": "14 TFLOP/s"}
    links = [{"between": [name, "sw"], "type": "ethernet-1g"} for name in nodes]
    return {
        "name": algorithm,
        "topology": {"name": "two", "nodes": {**nodes, "sw": {"kind": "switch"}}, "links": links},
        "algorithm": {"name": algorithm},
        "workload": {"name": "mnist_mlp"},
        "stop": {"steps": STEPS},
        "evaluate_every": STEPS // 2,
        "seed": 5,
    } | changes


def sockets(at: PartContext) -> None:
    """Train with four algorithms over sockets; resume one of them from a checkpoint."""
    for algorithm in FOUR:
        train(algorithm, "sockets", (at.device, at.device), {}, at)
    with measured(at.table, "checkpoint sync_ps", "steps") as row:
        source = experiment("sync_ps", (at.device, at.device), checkpoint={"every": STEPS // 4})
        whole = simcluster.run(source, backend="sockets", out=at.folder / "whole", report=False)
        out = at.folder / "resumed"
        resumed = simcluster.resume(whole.folder, step=STEPS // 2, backend="sockets", out=out, report=False)
        if resumed.summary["weights_sha256"] != whole.summary["weights_sha256"]:
            raise AssertionError(f"{STEPS // 2} steps and as many resumed ones end with other weights")
        row.value = str(STEPS)


def torch_backend(at: PartContext) -> None:
    """Train over torch.distributed: through the host, and by NCCL if there are two cards."""
    for algorithm in FOUR[:2]:
        train(algorithm, "torch", (at.device, at.device), {"nccl": False}, at)
    if at.device == "cuda" and torch.cuda.device_count() > 1:
        for algorithm in FOUR:
            train(algorithm, "torch", ("cuda:0", "cuda:1"), {"nccl": True}, at)
        return
    with measured(at.table, "torch nccl"):
        raise Skipped("NCCL takes one rank per card, and this machine has not two cards")


def train(algorithm: str, backend: str, devices: tuple[str, str], options: dict[str, bool], at: PartContext) -> None:
    """Append a row for a run on *backend*, and one for its weights against the simulator's."""
    name = f"{backend}{' nccl' if options.get('nccl') else ''} {algorithm}"
    where = at.folder / name.replace(" ", "-")
    pair: RunPair | None = None
    with measured(at.table, name, "accuracy") as row:
        source = experiment(algorithm, devices)
        simulated = simcluster.run(source, backend="sim", out=where / "sim", report=False)
        real = simcluster.run(source, backend=backend, options=options, out=where / "real", report=False)
        _check_counts(row, simulated.summary, real.summary, devices)
        pair = RunPair(simulated, real)
    if pair is not None:
        with measured(at.table, f"{name}: weights", "from the CPU's") as row:
            judged = pair.kernels
            if not pair.same_weights and (judged is None or not judged.within):
                raise AssertionError(f"weights differ from the simulator's beyond {TOLERANCE}: {judged}")
            row.value = "0" if judged is None else f"{judged.difference:.1e}"


def _check_counts(row: Row, simulated: dict[str, Any], real: dict[str, Any], devices: tuple[str, str]) -> None:
    """Fill *row*; raise AssertionError for a wrong device, or if counts differ from the simulator's."""
    found = [node["numerics"]["device"] for node in real["nodes"].values()]
    row.why = ", ".join(found)
    if not all(one.startswith(device) for one, device in zip(found, devices, strict=True)):
        raise AssertionError(f"computed on {row.why}")
    for key in COMPARED:
        if simulated[key] != real[key]:
            raise AssertionError(f"{key}: {simulated[key]} simulated, {real[key]} on real nodes")
    row.value = f"{real['accuracy']:.4f}"


def prediction(at: PartContext) -> None:
    """Calibrate the device; predict a run from that, and measure it."""
    home = at.folder / "prediction"
    home.mkdir()
    file = home / "measured.yaml"
    with measured(at.table, "calibrate") as row:
        _command("calibrate", "this-machine", "--compute", at.device, "--out", str(file))
        nodes = [node for node in load(str(file)).document["nodes"].values() if "compute" in node]
        if not nodes or not all(node["compute"].startswith(at.device) for node in nodes):
            raise AssertionError(f"no node computes on {at.device}: {nodes}")
        blocks = (nodes[0].get("accelerator", {}), nodes[0])  # the profile is in the part that computed
        profile = next(block["profile"] for block in blocks if "profile" in block)
        taken = profile["mnist_mlp/gradient"]
        row.why = json.dumps(profile)
        row.value, unit = (taken if isinstance(taken, str) else next(iter(taken.values()))).split()
        row.unit = f"{unit} per gradient"
    with measured(at.table, "step time", "measured/predicted") as row:
        if not file.exists():
            raise Skipped("no calibration")
        steps = PREDICTED_STEPS[at.device]
        words = ["run", "quickstart", "--topology", str(file), "--no-report", "--set", f"stop.steps={steps}"]
        words += ["--set", f"evaluate_every={steps}"]
        for backend in ("sim", "sockets"):
            _command(*words, "--backend", backend, "--out", str(home / backend))
        pair = RunPair(*(simcluster.load_run(home / backend) for backend in ("sim", "sockets")))
        predicted_s, measured_s = (run.summary["elapsed_s"] / steps for run in (pair.a, pair.b))
        found = pair.interval
        inside = "no interval" if found is None else f"{'inside' if found['inside'] else 'outside'} the interval"
        row.why = f"{1e3 * predicted_s:.3f} ms predicted, {1e3 * measured_s:.3f} ms measured per step, {inside}"
        row.value = f"{measured_s / predicted_s:.3f}"


def _command(*words: str) -> None:
    """Run a command of simcluster. Raise RuntimeError with its last line if it fails."""
    done = subprocess.run([sys.executable, "-m", "simcluster", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise RuntimeError(f"simcluster {words[0]}: {lines[-1]}")
