"""Plain flows against finish times computed elsewhere, by SimGrid 3.32 and a second solver, and by hand.

data/network_cases.json: links are [a, b, bytes/s, seconds], full duplex; flows [source, target, bytes, start, finish].
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from simcluster_backends.sim.plain_flows import finish_times

from simcluster.topology import Link, Node, Topology
from simcluster.topology.plain_flows import PlainFlow
from tests.support.clusters import IDEAL, star
from tests.support.root import TESTS

CASES = json.loads((TESTS / "data" / "network_cases.json").read_text())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_finish_times_are_those_of_an_independent_simulator(case: dict[str, Any]) -> None:
    nodes = {host: Node(host, IDEAL) for host in case["hosts"]} | {name: Node(name) for name in case["switches"]}
    topology = Topology(case["name"], nodes, tuple(Link(*link) for link in case["links"]))
    *flows, ends = zip(*case["flows"], strict=True)
    found = finish_times(topology, [PlainFlow(*flow) for flow in zip(*flows, strict=True)], case["model"])
    assert found == pytest.approx(ends, rel=1e-9)


def test_the_window_bounds_a_flow_over_a_long_way() -> None:
    # lv08: 4 MiB over twice 50 ms is 41.9 MB/s, less than 0.97 x 125 MB/s; 13.01 latencies come first.
    [done] = finish_times(star(2, 125e6, 0.025), [PlainFlow("n0", "n1", 100e6)], "lv08")
    assert done == pytest.approx(13.01 * 0.05 + 100e6 / (4194304 / 0.1), rel=1e-12)


# pictures of a fluid network, with hand arithmetic


MBps = 1e6


def line(*links: tuple[float, float], duplex: str = "full") -> Topology:
    """n0-n1-n2-... over links of (bandwidth, latency)."""
    nodes = {f"n{index}": Node(f"n{index}", IDEAL) for index in range(len(links) + 1)}
    joined = [Link(f"n{i}", f"n{i + 1}", *numbers, duplex) for i, numbers in enumerate(links)]  # type: ignore[arg-type]
    return Topology("line", nodes, tuple(joined))


ONE, LOT = line((MBps, 0.01)), line(*[(MBps, 0.0)] * 3)
CAPPED = Topology(
    "capped",
    {name: Node(name, IDEAL) for name in ("slow", "fast", "end")} | {"sw": Node("sw")},
    (Link("slow", "sw", 1e5, 0.0), Link("fast", "sw", 1e9, 0.0), Link("sw", "end", MBps, 0.0)),
)
PICTURES: dict[str, tuple[Topology, list[tuple[str, str, float, float]], list[float]]] = {
    "one link": (ONE, [("n0", "n1", 1e5, 0)], [0.11]),
    "three hops": (line((MBps, 1e-3), (0.5 * MBps, 2e-3), (2 * MBps, 3e-3)), [("n0", "n3", 1e6, 0)], [2.006]),
    "two alike": (ONE, [("n0", "n1", 1e6, 0)] * 2, [2.01, 2.01]),
    "one twice as large": (ONE, [("n0", "n1", 1e6, 0), ("n0", "n1", 2e6, 0)], [2.01, 3.01]),
    "one later": (ONE, [("n0", "n1", 1e6, 0), ("n0", "n1", 1e6, 0.5)], [1.51, 2.01]),
    "parking lot": (
        LOT,
        [("n0", "n3", 1e6, 0), ("n0", "n1", 1e6, 0), ("n1", "n2", 1e6, 0), ("n2", "n3", 1e6, 0)],
        [2.0] * 4,
    ),
    "unequal links": (
        line((MBps, 0.0), (2 * MBps, 0.0)),
        [("n0", "n2", 1e6, 0), ("n0", "n1", 1e6, 0), ("n1", "n2", 1e6, 0)],
        [2.0, 2.0, 2 / 3],
    ),
    "contention-free": (line((MBps, 0.01), duplex="free"), [("n0", "n1", 1e6, 0)] * 2, [1.01, 1.01]),
    "half duplex": (line((MBps, 0.0), duplex="half"), [("n0", "n1", 1e6, 0), ("n1", "n0", 1e6, 0)], [2.0, 2.0]),
    "full duplex": (line((MBps, 0.0)), [("n0", "n1", 1e6, 0), ("n1", "n0", 1e6, 0)], [1.0, 1.0]),
    "one capped": (CAPPED, [("slow", "end", 1e6, 0), ("fast", "end", 1e6, 0)], [10.0, 1 / 0.9]),
    "no bytes": (ONE, [("n0", "n1", 0, 0)], [0.01]),
    "a star on which a well-known solver overloads a link": (
        star(3, MBps, 1e-3),
        [
            ("n0", "n1", 267460, 0),
            ("n0", "n2", 797927, 0),
            ("n1", "n0", 683245, 0),
            ("n1", "n2", 98419, 0),
            ("n1", "n2", 936711, 0),
        ],
        [0.438501, 1.696273, 1.466909, 0.297257, 1.835057],
    ),
}


@pytest.mark.parametrize("name", PICTURES)
def test_plain_flows_end_when_they_must(name: str) -> None:
    topology, flows, expected = PICTURES[name]
    times = finish_times(topology, [PlainFlow(a, b, float(size), float(start)) for a, b, size, start in flows])
    rounded = name.startswith("a star")  # given to six digits
    assert times == pytest.approx(expected, **({"abs": 5e-7} if rounded else {"rel": 1e-9}))
