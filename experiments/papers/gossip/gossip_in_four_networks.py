"""When gossip is ten times as fast as what it is compared with, and when it is slower: four networks, in seconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments.papers.frame import BOWL, Check, Lab, Paper, agrees, exceeds, star

NODES, COMPUTE_S, PAYLOAD_B = 16, 0.05, 1.08e6
CELLS = {
    "10 Mb/s, 0.1 ms": ("10 Mbps", "50 us", 1.25e6, 1e-4),
    "10 Mb/s, 20 ms": ("10 Mbps", "10 ms", 1.25e6, 0.02),
    "1 Gb/s, 0.1 ms": ("1 Gbps", "50 us", 1.25e8, 1e-4),
    "1 Gb/s, 20 ms": ("1 Gbps", "10 ms", 1.25e8, 0.02),
}
"""Bandwidth, latency of one link; B in bytes a second, a of the way between two nodes."""
ALGORITHMS: dict[str, dict[str, Any]] = {
    "D-PSGD": {"name": "d_psgd", "overlay": "ring", "order": "step_then_mix"},
    "D-PSGD, overlapped": {"name": "d_psgd", "overlay": "ring"},
    "ring": {"name": "all_reduce_dp", "schedule": "ring"},
    "PS": {"name": "sync_ps"},
}


def step_s(lab: Lab, name: str, bandwidth: str, latency: str) -> float:
    """What a step takes, on average."""
    steps = lab.pick(1, 10)
    run = lab.run(
        topology=star([None] * NODES, work=f"{COMPUTE_S / 2} s", bandwidth=bandwidth, latency=latency),
        algorithm=ALGORITHMS[name],
        workload={"path": BOWL, "size": round(PAYLOAD_B / 4), "samples": NODES, "dtype": "float32"},
        stop={"steps": steps},
        numerics="none",
    )
    return float(run.summary["elapsed_s"]) / steps


def textbook_s(name: str, B: float, a: float) -> float:
    """Gradient and update take half of the computing each; the paper's order hides the exchange behind the gradient."""
    p, transfer = NODES, PAYLOAD_B / B
    gossip = a + 2 * transfer
    if name == "D-PSGD, overlapped":
        return COMPUTE_S / 2 + max(COMPUTE_S / 2, gossip)
    exchange = {"D-PSGD": gossip, "ring": 2 * (p - 1) * (a + transfer / p), "PS": 2 * (a + (p - 1) * transfer)}
    return COMPUTE_S + exchange[name]


def measure(lab: Lab) -> Sequence[Check]:
    checks, against_ps, against_ring = [], {}, {}
    for cell, (bandwidth, latency, B, a) in CELLS.items():
        took = {name: step_s(lab, name, bandwidth, latency) for name in ALGORITHMS}
        off = max(abs(took[name] / textbook_s(name, B, a) - 1) for name in ALGORITHMS)
        told = ", ".join(f"{name} {seconds:.4g} s" for name, seconds in took.items())
        checks.append(Check(f"{cell}: a step", "the textbook's, to 1e-9", f"{told}; off by {off:.1g}", off <= 1e-9))
        against_ps[cell], against_ring[cell] = took["PS"] / took["D-PSGD"], took["ring"] / took["D-PSGD"]
    slow, _, fast, far = CELLS
    return [
        *checks,
        agrees(f"{slow}: against the ring", against_ring[slow], 0.941, 5e-4),
        agrees(f"{far}: against the ring", against_ring[far], 7.63, 5e-3),
        exceeds(f"{slow}: against PS", against_ps[slow], 10),
        exceeds("against PS, the least of all cells", min(against_ps.values()), 1, times=3),
        Check(
            "against the ring without latency, at most",
            "no gain to speak of: below 1.05",
            f"{max(against_ring[slow], against_ring[fast]):.3f}",
            max(against_ring[slow], against_ring[fast]) < 1.05,
        ),
    ]


PAPER = Paper(
    title="D-PSGD against a parameter server and a ring, in four networks",
    citation="Lian, Zhang, Zhang, Hsieh, Zhang and Liu 2017. Can decentralized algorithms outperform centralized "
    "algorithms? A case study for decentralized parallel stochastic gradient descent (NeurIPS), section 5",
    claim="With slow links D-PSGD is up to ten times as fast as its well-optimized centralized counterparts, since "
    "no node is a bottleneck; with high latency it wins as well, since a node waits for only two neighbours.",
    setting="16 nodes on a switch, 8.64 Mb of weights (a ResNet-20's), 50 ms of computing per step, 10 Mb/s or 1 "
    "Gb/s, 0.1 ms or 20 ms from node to node. Timed without computing. Ratios are for `d_psgd` that steps, then "
    "mixes, so nothing is overlapped; the paper's order, which overlaps the exchange with the gradient, is timed "
    "as well. Textbook: gossip a + 2 M/B, ring 2 (p-1) (a + M/(pB)), server 2 (a + (p-1) M/B).",
    expected="Ten times against a server at 10 Mb/s. A ring all-reduce sends nearly the same bytes, so there is no "
    "gain by bandwidth (0.94 of its speed), and 7.6 times by latency.",
    measure=measure,
)
