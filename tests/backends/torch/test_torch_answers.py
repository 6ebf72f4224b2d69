"""Language models over torch.distributed: started by torchrun, and with a node that is lost on the way."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import simcluster
from simcluster.errors import PeerLost, UsageError
from simcluster.lm.serving.run import answer_all
from simcluster.topology import Topology
from tests.lm.models.test_trained import SIZES, folder_of
from tests.lm.serving.test_losses import LAYOUTS, requests, setup_of
from tests.support.dying import PROGRAM
from tests.support.levels import sample_of
from tests.support.root import ROOT

PLACED = {"kind": "pipeline", "nodes": {"n2": 1, "n0": 2}}  # n1 holds no layer


@pytest.mark.slow
def test_torchrun_gives_the_tokens_of_the_simulator_and_rank_0_alone_prints_them(command: Any, tmp_path: Path) -> None:
    folder_of(tmp_path, SIZES)
    (tmp_path / "star.yaml").write_text(yaml.safe_dump(Topology.star(3).document))
    (tmp_path / "placement.yaml").write_text(yaml.safe_dump(PLACED, sort_keys=False))
    words = (
        "generate", str(tmp_path / "star.yaml"), "--model", str(tmp_path), "--prompt", "To be", "--max-tokens", "6",
        "--placement", str(tmp_path / "placement.yaml"), "--json",
    )  # fmt: skip
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3")
    done = subprocess.run(
        [*launcher, "-m", "simcluster", *words, "--backend", "torch"], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    measured, simulated = json.loads(done.stdout), json.loads(command(*words)[1])
    for key in ("text", "token_ids", "token_ids_sha256", "finish_reason", "placement", "lost"):
        assert measured[key] == simulated[key], key
    assert [(node["node"], node["layers"]) for node in measured["nodes"]] == [("n2", 1), ("n0", 2)]


@pytest.mark.slow
@pytest.mark.parametrize("name", sample_of(["pipeline", "tensor", "replicas"]))
def test_a_lost_node_ends_the_run_and_is_named(name: str, tmp_path: Path) -> None:
    folder_of(tmp_path, SIZES)
    setup = setup_of(str(tmp_path), LAYOUTS[name], requests(), "torch")
    with pytest.raises(PeerLost, match=r"rank 1 \(n1\) is lost"):
        answer_all(setup, Topology.star(3), backend="torch", program=PROGRAM)


def test_planned_faults_are_refused(tmp_path: Path) -> None:
    folder_of(tmp_path, SIZES)
    setup = setup_of(str(tmp_path), LAYOUTS["alone"], requests(), "torch")
    with simcluster.faults() as plan, pytest.raises(UsageError, match=r"faults: .*use sim or sockets"):
        plan.crash("n1", at_s=1.0)
        answer_all(setup, Topology.star(3), backend="torch")
