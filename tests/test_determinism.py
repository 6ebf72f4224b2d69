"""The same experiment and seed give the same bits in other processes, whatever the hash seed and number of threads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


def summary(folder: Path, hash_seed: int, *arguments: str) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "OMP_NUM_THREADS": str(hash_seed)}
    command = [sys.executable, "-m", "simcluster", "run", "quickstart", "--no-report", "--json"]
    done = subprocess.run(
        [*command, "--set", "stop.steps=20", "--out", str(folder), *arguments],
        env=environment, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("algorithm", ["sync_ps", "edp", "all_reduce_dp"])
def test_two_processes_agree_to_the_bit_and_another_seed_does_not(algorithm: str, tmp_path: Path) -> None:
    straggler = ("--set", "topology.nodes.pi4.straggler={kind: lognormal, sigma: 0.5}")
    first = summary(tmp_path / "a", 1, "--algorithm", algorithm, "--seed", "0", *straggler)
    second = summary(tmp_path / "b", 2, "--algorithm", algorithm, "--seed", "0", *straggler)
    other = summary(tmp_path / "c", 1, "--algorithm", algorithm, "--seed", "1", *straggler)
    for key in ("trace_sha256", "weights_sha256", "elapsed_s", "bytes_sent", "messages_sent", "accuracy"):
        assert first[key] == second[key], key
    for key in ("trace_sha256", "weights_sha256", "elapsed_s"):
        assert first[key] != other[key], key


FAULTS = (
    "[{kind: loss, link: pi5-mini1, probability: 0.1, at: 0 s},"
    " {kind: hang, node: pi4, at: 20 ms, for: 5 ms, mean_every: 30 ms, times: 5},"
    " {kind: flap, link: pi4-mini3, at: 10 ms, for: 400 ms, period: 40 ms},"
    " {kind: restart, node: pi4, at: 300 ms, after: 20 ms}]"
)


def test_the_same_seed_and_fault_plan_give_the_same_trace_and_another_seed_does_not(tmp_path: Path) -> None:
    planned = ("--algorithm", "edp", "--set", f"faults={FAULTS}")
    first = summary(tmp_path / "a", 1, *planned, "--seed", "0")
    second = summary(tmp_path / "b", 2, *planned, "--seed", "0")
    other = summary(tmp_path / "c", 1, *planned, "--seed", "1")
    for key in ("trace_sha256", "weights_sha256", "elapsed_s", "bytes_sent", "faults"):
        assert first[key] == second[key], key
    for key in ("trace_sha256", "elapsed_s", "faults"):
        assert first[key] != other[key], key
    assert {row["kind"] for row in first["faults"]} == {"loss", "hang", "flap", "restart"}
