"""`python -m tools.benchmarks.quickstart_step`: a quickstart step relative to torch.distributed.

On both sides, processes of this machine train the same replicas and a server with the same batches.
simcluster runs `sync_ps` on sockets. torch.distributed only reduces one flat gradient to rank 0
with gloo, and broadcasts the weights. Runs of the two sides alternate. docs/performance.md has the
ratios.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist
from torch.nn.utils import parameters_to_vector, vector_to_parameters

import simcluster
from simcluster.process.intra_op import use_one_thread
from simcluster.workloads import WORKLOADS
from tests.support.socket_runs import free_port

SIZES = (2, 4)
ROUNDS = 5
STEPS = 400
SETTINGS = {"batch_size": 32, "learning_rate": 0.1}


def ours(size: int, folder: Path) -> float:
    """Return the seconds per step of `sync_ps` on real nodes, without the first step."""
    run = simcluster.run(
        backend="sockets",
        topology={"generator": "star", "workers": size},
        algorithm="sync_ps",
        workload={"name": "mnist_mlp", **SETTINGS},
        stop={"steps": STEPS},
        out=folder,
        report=False,
    )
    times_s = run.metrics.query("name == 'loss' and node == 'n0'").sort_values("step")["time_s"]
    return float(times_s.iloc[-1] - times_s.iloc[0]) / (len(times_s) - 1)


def theirs(rank: int, size: int, port: int) -> None:
    """Train as *rank* of a gloo group of *size*; rank 0 prints its seconds per step."""
    use_one_thread()
    store = dist.TCPStore("127.0.0.1", port, size, is_master=rank == 0, timeout=timedelta(seconds=60))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    replica = WORKLOADS["mnist_mlp"](**SETTINGS).replica(rank, size, 0, STEPS)
    weights = list(replica.parameters)
    began_s = 0.0
    for step, batch in enumerate(replica.batches()):
        if step == 1:  # the first step warms up
            began_s = time.perf_counter()
        _, gradients = replica.loss_and_gradients(batch)
        flat = parameters_to_vector(gradients)
        dist.reduce(flat, 0)
        if rank == 0:
            vector_to_parameters(flat.div_(size), gradients)
            replica.apply(gradients)
        vector = parameters_to_vector(weights).detach()
        dist.broadcast(vector, 0)
        vector_to_parameters(vector, weights)
    if rank == 0:
        print((time.perf_counter() - began_s) / (STEPS - 1))
    dist.barrier()
    dist.destroy_process_group()


def group_of(size: int) -> float:
    """Return the seconds per step of torch.distributed with *size* processes."""
    command = [sys.executable, "-m", "tools.benchmarks.quickstart_step"]
    port = str(free_port())
    ranks = [subprocess.Popen([*command, str(rank), str(size), port], stdout=-1, text=True) for rank in range(size)]
    outputs = [rank.communicate()[0] for rank in ranks]
    return float(outputs[0])


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for size in SIZES:
            pairs = [(ours(size, Path(folder) / f"{size}-{turn}"), group_of(size)) for turn in range(ROUNDS)]
            ours_s, theirs_s = (statistics.median(column) for column in zip(*pairs, strict=True))
            print(
                f"{size} processes: {ours_s * 1e3:.2f} ms a step, torch.distributed {theirs_s * 1e3:.2f} ms; "
                f"ratio {statistics.median(a / b for a, b in pairs):.2f}"
            )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        theirs(*map(int, sys.argv[1:]))
    else:
        main()
