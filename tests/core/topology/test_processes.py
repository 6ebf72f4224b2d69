"""Several processes on a machine are a topology of their own, and how nodes are started is read with all errors."""

from __future__ import annotations

from typing import Any

import pytest

from simcluster.errors import UsageError
from simcluster.topology import load

TWO: dict[str, Any] = {
    "name": "two",
    "launch": {"python": "/opt/my venv/bin/python"},
    "nodes": {
        "a": {
            "device": "mac-mini-m4",
            "compute": "auto",
            "ssh": "me@a",
            "address": "10.0.0.1",
            "port": 7000,
            "site": "desk",
        },
        "b": {"flops": "1 GFLOP/s", "ssh": "b", "nproc_per_node": 1, "command": ["uv", "run", "simcluster"]},
    },
    "links": [{"between": ["a", "b"], "bandwidth": "1 Gbps", "latency": "100 us"}],
}


def test_each_process_is_a_worker_with_its_share_of_the_machine() -> None:
    alone, shared = load(TWO), load(TWO, overrides={"launch.nproc_per_node": 2})
    assert alone.workers == ["a", "b"]
    assert shared.workers == ["a_0", "a_1", "b"]  # b says so itself
    whole = alone.nodes["a"].device
    for name, port in (("a_0", 7000), ("a_1", 7001)):
        node = shared.nodes[name]
        assert whole is not None
        assert node.device is not None
        assert node.device.flops_per_s == whole.flops_per_s / 2
        assert node.device.memory_bytes == (whole.memory_bytes or 0) // 2
        assert (node.ssh, node.address, node.port, node.site) == ("me@a", "10.0.0.1", port, "desk")
    assert not shared.nodes["a"].is_worker
    assert [hop.link.name for hop in shared.route("a_0", "b")] == ["a-a_0", "a-b"]
    assert [hop.link.type for hop in shared.route("a_0", "a_1")] == ["loopback", "loopback"]


def test_what_was_made_reads_back_as_the_same_topology() -> None:
    shared = load(TWO, overrides={"nodes.a.nproc_per_node": 3})
    assert load(shared.document) == shared


def test_a_python_or_a_command_starts_the_nodes_and_a_nodes_own_comes_first() -> None:
    nodes = load(TWO).nodes
    assert nodes["a"].command == ("/opt/my venv/bin/python", "-m", "simcluster")
    assert nodes["b"].command == ("uv", "run", "simcluster")


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"launch.python": "-c"}, "launch.python"),
        ({"nodes.a.command": "simcluster"}, "a list of words"),
        ({"nodes.a.command": ["a", "line\nbreak"]}, "a list of words"),
        ({"nodes.b.python": "python3"}, "python or command, not both"),
        ({"nodes.a.nproc_per_node": 0}, "a whole number from 1 to 256"),
        ({"launch.nproc": 2}, "did you mean 'nproc_per_node'"),
    ],
)
def test_what_is_wrong_is_told(overrides: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        load(TWO, overrides=overrides)


def test_a_process_may_not_be_called_as_another_node_is() -> None:
    document = {**TWO, "nodes": {**TWO["nodes"], "a_1": {"kind": "switch"}}}
    with pytest.raises(UsageError, match="one of them called a_1"):
        load(document, overrides={"nodes.a.nproc_per_node": 2})
