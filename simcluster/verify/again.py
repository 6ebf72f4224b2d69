"""Run the experiment on standard input in the simulator, and print its digests: for determinism."""

from __future__ import annotations

import json
import sys

from simcluster.experiment.read import read_experiment
from simcluster.process.intra_op import use_one_thread
from simcluster.verify.checks.determinism import digests
from simcluster.verify.running import run_plan

if __name__ == "__main__":
    use_one_thread()
    print(digests(run_plan(read_experiment(json.load(sys.stdin), backend="sim"))))
