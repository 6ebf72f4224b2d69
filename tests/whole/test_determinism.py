"""The same experiment and seed give the same bits in other processes, whatever the hash seed and number of threads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import simcluster
from tests.support.root import ROOT

Summary = dict[str, Any]

STRAGGLER = {"topology.nodes.pi4.straggler": {"kind": "lognormal", "sigma": 0.5}}
FAULTS = [
    {"kind": "loss", "link": "pi5-mini1", "probability": 0.1, "at": "0 s"},
    {"kind": "hang", "node": "pi4", "at": "20 ms", "for": "5 ms", "mean_every": "30 ms", "times": 5},
    {"kind": "flap", "link": "pi4-mini3", "at": "10 ms", "for": "400 ms", "period": "40 ms"},
    {"kind": "restart", "node": "pi4", "at": "300 ms", "after": "20 ms"},
]
SMALL = {"workload.hidden": 8}
ALGORITHMS = ["sync_ps", "edp", "all_reduce_dp", "ssp", "ad_psgd", "async_diloco", "fedbuff", "choco_sgd"]
CASES: dict[str, dict[str, Any]] = {
    **{
        # One model of the usual size, whose products are large enough for threads to part them; the others small.
        name: {"algorithm": name, "overrides": {**STRAGGLER, "stop.steps": 10} | ({} if name == "sync_ps" else SMALL)}
        for name in ALGORITHMS
    },
    "faults": {"algorithm": "edp", "overrides": {"faults": FAULTS, "stop.steps": 20}},
}


def summaries(folder: Path, seed: int) -> dict[str, Summary]:
    """What became of every case, run here."""
    return {
        name: simcluster.run("quickstart", **case, seed=seed, out=folder / name, report=False).summary
        for name, case in CASES.items()
    }


@pytest.fixture(scope="module")
def found(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[dict[str, Summary], dict[str, Summary], dict[str, Summary]]:
    """The cases in a process with hash seed 1 and one thread, in another with 2 and two, and here with another seed."""
    folder = tmp_path_factory.mktemp("determinism")
    script = (
        "import json, sys; from pathlib import Path; from tests.whole.test_determinism import summaries; "
        "print(json.dumps(summaries(Path(sys.argv[1]), seed=0)))"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(folder / number)],
            env={**os.environ, "PYTHONHASHSEED": number, "OMP_NUM_THREADS": number},
            cwd=ROOT, stdout=subprocess.PIPE, text=True,
        )
        for number in ("1", "2")
    ]  # fmt: skip
    other = summaries(folder / "other", seed=1)
    first, second = (json.loads(process.communicate()[0]) for process in processes)
    return first, second, other


@pytest.mark.slow
@pytest.mark.parametrize("name", ALGORITHMS)
def test_two_processes_agree_to_the_bit_and_another_seed_does_not(name: str, found: Any) -> None:
    first, second, other = (summaries[name] for summaries in found)
    for key in ("trace_sha256", "weights_sha256", "elapsed_s", "bytes_sent", "messages_sent", "accuracy"):
        assert first[key] == second[key], key
    for key in ("trace_sha256", "weights_sha256", "elapsed_s"):
        assert first[key] != other[key], key


@pytest.mark.slow
def test_the_same_seed_and_fault_plan_give_the_same_trace_and_another_seed_does_not(found: Any) -> None:
    first, second, other = (summaries["faults"] for summaries in found)
    for key in ("trace_sha256", "weights_sha256", "elapsed_s", "bytes_sent", "faults"):
        assert first[key] == second[key], key
    for key in ("trace_sha256", "elapsed_s", "faults"):
        assert first[key] != other[key], key
    assert {row["kind"] for row in first["faults"]} == {"loss", "hang", "flap", "restart"}
