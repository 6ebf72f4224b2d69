"""The topology and the faults of a program."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import inf

from simcluster_backends.sim.faults import SimFaults

from simcluster.fault_plans.kinds import Crash, Hang, Restart, Slow
from simcluster.topology import Link, Node, Topology
from simcluster.topology.model.conditions import Background, BackgroundFlow, Jitter, RateTrace
from tests.support.clusters import IDEAL
from tools.lookahead_by_chance.program import Program

NODE_EXTRAS = ("host_bandwidth_Bps", "send_overhead_s", "recv_overhead_s", "send_buffer_bytes")
BUSY = Background(1e7, 1e-3, 1e-3)


def topology_of(program: Program) -> Topology:
    """Return the topology of *program*. Its workers are called n0, n1, ..."""
    names = [f"n{rank}" for rank in range(program.size)]
    extras = {key: program.extras[key] for key in NODE_EXTRAS if key in program.extras}
    nodes = {name: Node(name, IDEAL, **extras) for name in names}  # type: ignore[arg-type]
    ends = list(_ends(program.shape, names))
    nodes |= {name: Node(name) for pair in ends for name in pair if name not in nodes}
    links = [_link(program, number, pair) for number, pair in enumerate(ends)]
    if program.shape == "two":
        links.append(Link("s0", "s1", 1e9, 25e-6, program.duplex))
    flows = (BackgroundFlow(names[0], names[-1], BUSY),) if "background_flow" in program.extras else ()
    return Topology("by-chance", nodes, tuple(links), background=flows)


def _ends(shape: str, names: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the two ends of each link."""
    count = len(names)
    if shape in ("star", "free"):
        yield from ((name, "sw") for name in names)
    elif shape == "two":
        yield from ((name, f"s{rank * 2 // count}") for rank, name in enumerate(names))
    elif shape == "complete":
        yield from ((names[low], names[high]) for high in range(count) for low in range(high))
    else:
        yield from pairwise(names)
        if shape == "ring" and count > 2:
            yield names[-1], names[0]


def _link(program: Program, number: int, ends: tuple[str, str]) -> Link:
    extras, (rate_Bps, latency_s) = program.extras, program.links[number]
    is_even = number % 2 == 0
    slower = RateTrace(((0.0, rate_Bps), (1e-3, rate_Bps / 2), (2e-3, rate_Bps)), 3e-3)
    return Link(
        *ends,
        rate_Bps,
        latency_s,
        "free" if program.shape == "free" else program.duplex,
        jitter=Jitter(extras["jitter_s"]) if "jitter_s" in extras and is_even else None,
        loss=extras.get("loss", 0.0) if is_even else 0.0,
        trace=slower if "trace" in extras and not number else None,
        background=BUSY if "background" in extras and number == 1 else None,
        ack_share=extras.get("ack_share", 0.0),
    )


def faults_of(program: Program) -> SimFaults | None:
    """Return the faults of *program*, or None if it has none."""
    found: list[Crash | Restart | Hang | Slow] = []
    for fault in program.faults:
        spells, rank = ((fault.at_s, fault.at_s + fault.lasts_s),), fault.rank
        if fault.kind == "crash":
            found.append(Crash(rank=rank, spells=((fault.at_s, inf),)))
        elif fault.kind == "restart":
            found.append(Restart(rank=rank, spells=spells))
        elif fault.kind == "hang":
            found.append(Hang(rank=rank, spells=spells))
        else:
            found.append(Slow(rank=rank, factor=3.0, spells=spells))
    return SimFaults(found) if found else None
