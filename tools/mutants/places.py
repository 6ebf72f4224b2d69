"""The files that mutants change."""

from __future__ import annotations

ALGORITHMS = "simcluster/algorithms/"
SERVED, REDUCED = ALGORITHMS + "parameter_server/", ALGORITHMS + "data_parallel/"
SYNC_PS = SERVED + "sync_ps.py"
EDP = SERVED + "edp.py"
DP = REDUCED + "all_reduce_dp.py"
BARRIER, SERVER = SERVED + "barrier.py", SERVED + "asynchronous.py"
FLUSH = ALGORITHMS + "model_parallel/pipeline_flush.py"
EXPERTS, EXPERT_PASSES, EXPERT_LOAD = (
    ALGORITHMS + f"model_parallel/expert_{name}.py" for name in ("parallel", "passes", "load")
)
EXPERT_LAYER = "simcluster/workloads/layers/experts.py"
GENERATORS = "simcluster/process/generators.py"
RING, NAIVE = "simcluster/collectives/ring.py", "simcluster/collectives/naive.py"
INT8 = "simcluster/compression/int8.py"
STATISTICS = "simcluster/compute/running.py"
REPLICA, REDEALT = "simcluster/workloads/replica.py", {"name": "mnist_mlp", "hidden": 2, "partition": "redeal"}
STEPS, WORKLOAD = "simcluster/workloads/steps.py", "simcluster/workloads/workload.py"

ZERO_SUMS, ACCUMULATOR = REDUCED + "zero_sums.py", REDUCED + "accumulator.py"
