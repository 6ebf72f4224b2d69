"""What one simulated message costs, and where the time goes."""

from __future__ import annotations

import cProfile
import pstats
import statistics
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import torch
from simcluster_backends.sim import run_bodies
from simcluster_backends.sim.lookahead import ScheduleEntrants

from simcluster.collectives import exchange, operations
from simcluster.lab.bench.simulator import bench_simulator
from simcluster.topology import star
from simcluster.transport import Transport
from tools.benchmarks.timing import ROUNDS, cpu_s

MESSAGES = 4000
RING_BYTES = 100_000_000


def per_message_us(floats: int) -> float:
    """CPU time of one message of *floats* float32, sent and received over two idle links: a median."""
    return statistics.median(cpu_s(lambda: _stream(floats)) / MESSAGES for _ in range(ROUNDS)) * 1e6


def _stream(floats: int) -> None:
    tensor = torch.zeros(floats)

    async def sender(node: Transport) -> None:
        for _ in range(MESSAGES):
            await node.send(1, "t", tensor)

    async def receiver(node: Transport) -> None:
        for _ in range(MESSAGES):
            await node.recv(0, "t")

    ends = run_bodies([sender, receiver], star(2))
    assert ends == [None, None]


def where_it_goes() -> list[tuple[str, float]]:
    """(file, share of the time spent in its functions), the largest first; profiling slows all of them down."""
    profile = cProfile.Profile()
    profile.runcall(_stream, 1024)
    shares: dict[str, float] = {}
    for (file, _, name), (_, _, own_s, _, _) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        place = _place(file, name)
        shares[place] = shares.get(place, 0.0) + own_s
    total_s = sum(shares.values())
    return sorted(((place, own_s / total_s) for place, own_s in shares.items()), key=lambda share: -share[1])


def _place(file: str, name: str) -> str:
    path = Path(file)
    for package in ("simcluster", "simcluster_backends"):
        if package in path.parts:
            return "/".join(path.parts[path.parts.index(package) :])
    return "torch" if "torch" in name or "tensor" in name.lower() else "Python and asyncio"


def rings() -> Iterator[dict[str, float | int]]:
    """Ring all-reduces of 100 MB, without values: rounds that are computed for all nodes together."""
    for nodes in (16, 64, 128, 1024):
        yield bench_simulator(nodes, RING_BYTES)


def ring_message_us(nodes: int) -> float:
    """CPU time of one message of such a ring where each is simulated: a median."""
    return statistics.median(cpu_s(lambda: _ring(nodes)) / (2 * (nodes - 1) * nodes) for _ in range(ROUNDS)) * 1e6


def _ring(nodes: int) -> None:
    part = torch.empty(RING_BYTES // nodes, dtype=torch.uint8, device="meta")

    async def body(node: Transport) -> None:
        right, left = (node.rank + 1) % nodes, (node.rank - 1) % nodes
        for number in range(2 * (nodes - 1)):
            await exchange(node, right, left, f"ring/{number}", part)

    assert run_bodies([body] * nodes, star(nodes)) == [None] * nodes


COMPUTED = {
    ("all_reduce", "ring"): lambda p: 2 * (p - 1) * p,
    ("all_reduce", "halving_doubling"): lambda p: _folded(2, p),
    ("all_reduce", "recursive_doubling"): lambda p: _folded(1, p),
    ("all_reduce", "tree"): lambda p: 2 * (p - 1),
    ("reduce_scatter", "pairwise"): lambda p: (p - 1) * p,
    ("all_gather", "ring"): lambda p: (p - 1) * p,
    ("all_gather", "recursive_doubling"): lambda p: _folded(1, p),
    ("all_gather", "bruck"): lambda p: (p - 1).bit_length() * p,
}
"""Operations and schedules that are computed: their messages among p ranks."""


def _folded(rounds: int, nodes: int) -> int:
    """Return the messages if each bit of a place takes *rounds*; surplus ranks fold, and others get a start message."""
    bits = nodes.bit_length() - 1
    rest = nodes - (1 << bits)
    return (rounds * bits << bits) + (rest + (1 << bits) if rest else 0)


def computed_over_simulated(op: str, schedule: str, nodes: int) -> tuple[float, float]:
    """(CPU time of a message of a schedule as computed, in us; that over the time of one as simulated).

    Rounds of few messages are computed here, too. The schedule comes again and again, up to MESSAGES.
    """
    once = COMPUTED[op, schedule](nodes)
    repeats = max(1, MESSAGES // once)
    messages = once * repeats
    with patch.object(ScheduleEntrants, "fewest", 0):
        pairs = [
            (
                cpu_s(lambda: _run(op, schedule, nodes, True, repeats)),
                cpu_s(lambda: _run(op, schedule, nodes, False, repeats)),
            )
            for _ in range(3)
        ]
    return (
        statistics.median(quick_s for quick_s, _ in pairs) / messages * 1e6,
        statistics.median(quick_s / slow_s for quick_s, slow_s in pairs),
    )


async def _no_rounds_ahead(rounds: object) -> int:
    return 0


def _run(op: str, schedule: str, nodes: int, computed: bool, repeats: int) -> None:
    operation = getattr(operations, op)
    vector = torch.empty(RING_BYTES // 4, dtype=torch.uint8, device="meta")

    async def body(node: Transport) -> None:
        if not computed:
            vars(node)["rounds_ahead"] = _no_rounds_ahead
        for number in range(repeats):
            await operation(node, vector, f"bench {number}", schedule=schedule)

    assert run_bodies([body] * nodes, star(nodes)) == [None] * nodes
