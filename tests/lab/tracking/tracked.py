"""Runs made up for trackers: two nodes whose numbers are small enough to add up by hand; and 500 scalars."""

from __future__ import annotations

import math
from pathlib import Path

from simcluster.errors import PeerLost
from simcluster.results import Run
from simcluster.runs.recorder import Recorder
from simcluster.runs.write import write_run
from simcluster.topology import load
from tests.support.made_up_runs import made_up_config, record_of, two_nodes


def small_run(folder: Path, *, seed: int = 7, failed: bool = False) -> Run:
    """Losses of two nodes at two steps; one node notes twice at step 2, where the other has lost its way."""
    clock = [0.0]
    a, b = (Recorder(rank, name, lambda: clock[0]) for rank, name in enumerate("ab"))
    noted = [(a, 0.1, 1, 1.0), (b, 0.3, 1, 3.0), (a, 0.4, 2, 4.0), (a, 0.5, 2, 6.0), (b, 0.6, 2, math.nan)]
    for node, clock[0], step, loss in noted:
        node.metrics(step, {"loss": loss})
    a.metric_at(0.5, 2, "eval_loss", 0.25)
    record = record_of(a, b, elapsed_s=0.75)
    if failed:
        record.error = PeerLost(1, "b", "no heartbeat for 5 s")
    topology = two_nodes()
    config = made_up_config(topology=topology, seed=seed)
    return Run(write_run(folder, config, load(topology), record, "0.1.0"))


def run_of_500(folder: Path, *, seed: int = 7) -> Run:
    """Five numbers at each of 100 steps, 10 ms apart: m2 at step 30 is 32."""
    clock = [0.0]
    a, b = (Recorder(rank, name, lambda: clock[0]) for rank, name in enumerate("ab"))
    for step in range(1, 101):
        clock[0] = step * 0.01
        a.metrics(step, {f"m{number}": float(step + number) for number in range(5)})
    topology = two_nodes()
    record = record_of(a, b, elapsed_s=1.0)
    config = made_up_config(topology=topology, seed=seed)
    return Run(write_run(folder, config, load(topology), record, "0.1.0"))
