"""The largest message of a node: what the host's memory can hold, wherever the node computes."""

from __future__ import annotations

from typing import Any

import pytest
from simcluster_backends.sockets.launcher.node_job import LEAST_BYTES, _message_limits
from simcluster_backends.sockets.wire.frame import MESSAGE_LIMIT_BYTES

from simcluster.job import ClusterJob
from simcluster.topology import loads

CARD = {"kind": "cuda", "flops": "10 TFLOP/s", "memory": "1 MB"}


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ({}, MESSAGE_LIMIT_BYTES),
        ({"memory": "10 MB"}, 10**7),
        ({"memory": "1 kB"}, LEAST_BYTES),
        ({"memory": "10 MB", "accelerator": CARD, "compute": "cuda"}, 10**7),
        ({"memory": "10 MB", "accelerator": CARD, "compute": "cpu"}, 10**7),
        ({"accelerator": CARD, "compute": "cuda"}, MESSAGE_LIMIT_BYTES),
    ],
)
def test_a_message_may_be_as_large_as_the_memory_of_the_host(node: dict[str, Any], expected: int) -> None:
    nodes = {"a": {"flops": "1 GFLOP/s", **node}, "b": {"flops": "1 GFLOP/s"}}
    topology = loads({"nodes": nodes, "links": [{"between": ["a", "b"], "type": "ethernet-1g"}]})
    job = ClusterJob(["a", "b"], "{}", topology=topology)
    assert _message_limits(job) == [expected, MESSAGE_LIMIT_BYTES]
