"""Run as a program by test_sockets_launch: a launcher that the test can kill. Arguments: program, folder."""

from __future__ import annotations

import json
import sys

from simcluster_backends.sockets import run_cluster

from simcluster.job import ClusterJob

if __name__ == "__main__":
    program, folder = sys.argv[1:]
    run_cluster(
        ClusterJob(["a", "b"], json.dumps({"folder": folder}), program=f"tests.support.node_programs:{program}")
    )
