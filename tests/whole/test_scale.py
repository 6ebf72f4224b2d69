"""Large clusters and models: asked about in a process of their own, whose memory is looked at when it has ended."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.root import ROOT

SCRIPT = """
import json, sys
import simcluster
from simcluster.process.memory import peak_rss_bytes

for nodes in (2, 100):
    run = simcluster.run(
        "gpt-70b-1024", overrides={"topology.workers": nodes}, out=f"{sys.argv[1]}/{nodes}", report=False
    )
    print(json.dumps({**run.summary, "workers": nodes, "peak_mb": peak_rss_bytes() / 2**20}))
"""


@pytest.mark.slow
def test_a_gpt_of_70_billion_parameters_needs_little_memory_however_many_nodes_train_it(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    answers = {answer["workers"]: answer for answer in map(json.loads, done.stdout.splitlines())}
    for nodes, answer in answers.items():
        # 69.01 billion gradients of 4 bytes go round in 2 (n-1) rounds of an n-th each, by every node.
        assert answer["messages_sent"] == 2 * (nodes - 1) * nodes
        assert 69.0e9 < answer["bytes_sent"] / (2 * (nodes - 1) * 4) < 69.1e9
        assert answer["steps"] == 1
        # A single one of its replicas would be 276 GB; torch and what reads files are 300 MB.
        assert answer["peak_mb"] < 700
    # The peak of two, then of both: 98 nodes more may cost a megabyte each. At 1,024 that is half of the 2 GB that are
    # promised.
    assert answers[100]["peak_mb"] - answers[2]["peak_mb"] < 98
