"""Real processes whose connections are reset again and again train as if nothing had happened."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

import simcluster
from simcluster.errors import PeerLost
from simcluster.runs.record import RunRecord
from tests.support.clusters import chain
from tests.support.plans import plan
from tests.support.socket_runs import Running, gone, job, pids_in

TOPOLOGY = chain(3)
RESETS = {"kind": "reset", "groups": [["n0"], ["n1"], ["n2"]], "at": "0 s", "every": "5 ms", "times": 400}


def experiment(algorithm: str, *faults: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": "resets",
        "topology": {"generator": "star", "workers": 3, "device": "raspberry-pi-4", "latency": "100 us"},
        "algorithm": algorithm,
        "workload": {"name": "mnist_mlp", "hidden": 16},
        "stop": {"steps": 60},
        "faults": list(faults),
    }


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["all_reduce_dp", "sync_ps"])
def test_a_training_run_with_many_resets_has_the_weights_of_one_without(algorithm: str, tmp_path: Path) -> None:
    plain, reset = (
        simcluster.run(experiment(algorithm, *faults), backend=backend, out=tmp_path / backend, report=False).summary
        for backend, faults in (("sim", []), ("sockets", [RESETS]))
    )
    assert reset["weights_sha256"] == plain["weights_sha256"]
    assert (reset["status"], reset.get("lost"), reset["faults"][0]["kind"]) == ("done", None, "reset")
    assert len(reset["faults"][0]["spells_s"]) > 20
    for key in ("messages_sent", "bytes_sent"):
        assert reset[key] == plain[key], "what is sent again is not another message"


def test_a_killed_node_is_lost_at_once_although_its_connections_are_reset_all_the_time(tmp_path: Path) -> None:
    resets = plan(TOPOLOGY, {**RESETS, "times": 5000})
    options = {"dead_s": 60.0}  # longer than the test waits: the loss is known from elsewhere
    request = job("forever", names=TOPOLOGY.workers, folder=tmp_path, topology=TOPOLOGY, faults=resets, options=options)
    running = Running(request)
    pids = pids_in(tmp_path, TOPOLOGY.workers)

    os.kill(pids["n1"], signal.SIGKILL)
    record: RunRecord = running.result()
    assert isinstance(record.error, PeerLost)
    assert record.error.rank == 1
    assert all(map(gone, pids.values()))
