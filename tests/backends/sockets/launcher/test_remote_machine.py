"""Where nodes are to be: by ssh, by hand, or here."""

from __future__ import annotations

from typing import Any

import pytest

from simcluster.job import Remote, places
from simcluster.topology import load

SHELF = load(
    {
        "nodes": {
            "a": {"flops": "1 GFLOP/s", "ssh": "me@a", "address": "10.0.0.1", "python": "/p"},
            "b": {"flops": "1 GFLOP/s", "address": "10.0.0.2", "port": 7000},
            "c": {"flops": "1 GFLOP/s"},
        },
        "links": [{"between": [x, y], "bandwidth": "1 Gbps", "latency": "1 ms"} for x, y in (("a", "b"), ("b", "c"))],
    }
)
BY_SSH = Remote("me@a", ("/p", "-m", "simcluster"), "10.0.0.1")


@pytest.mark.parametrize(
    ("options", "addresses", "remotes"),
    [
        ({}, [None, None, None], [BY_SSH, None, None]),
        ({"rendezvous": "10.0.0.9:1"}, [None, ("10.0.0.2", 7000), None], [BY_SSH, None, None]),
        ({"rendezvous": "10.0.0.9:1", "ssh": False}, [("10.0.0.1", 0), ("10.0.0.2", 7000), None], [None] * 3),
        ({"ssh": False}, [None, None, None], [None] * 3),
    ],
)
def test_ssh_comes_first_then_hands_where_they_can_meet(
    options: dict[str, Any], addresses: list[Any], remotes: list[Any]
) -> None:
    assert places(SHELF, options) == (addresses, remotes)
