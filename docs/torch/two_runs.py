"""Two runs, one after the other, in the processes that torchrun has started; rank 0 writes both folders.

torchrun --standalone --nproc-per-node 3 two_runs.py three.yaml FOLDER
"""

from __future__ import annotations

import sys
from contextlib import suppress

import simcluster
from simcluster.errors import WrittenElsewhere

topology, folder = sys.argv[1:]
for algorithm in ("sync_ps", "all_reduce_dp"):
    with suppress(WrittenElsewhere):  # raised in every process but that of rank 0
        run = simcluster.run(
            topology=topology,
            algorithm=algorithm,
            workload={"name": "mnist_mlp", "hidden": 16, "batch_size": 8},
            stop={"steps": 4},
            backend="torch",
            out=f"{folder}/{algorithm}",
            report=False,
        )
        print(run.summary["weights_sha256"])
