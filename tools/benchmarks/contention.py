"""The CPU cost of a message as the cluster grows.

python -m tools.benchmarks.contention [--before CHECKOUT] [--largest N] [--draw FILE.svg]

Each case runs in a fresh process. With --before, each case first runs with another checkout of this
project, and the table shows both costs and their ratio.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from simcluster_backends.sim import run_bodies
from simcluster_backends.sim.cluster import SimCluster

import simcluster
from simcluster.collectives import all_to_all
from simcluster.topology import star
from simcluster.transport import Transport
from tools.benchmarks.timing import cpu_s

MESSAGES = 4000
ALGORITHMS = ("sync_ps", "edp", "fedbuff")
SIZES = (8, 64, 256, 1024, 4096, 16384)
ALL_TO_ALL_SIZES = (64, 256, 1024)
ONE_BY_ONE_SIZES = (8, 32, 64, 128, 256)
EXCHANGED = 2**17
"""The minimum number of messages of `all_to_all`.

It simulates many at once, so each takes little time.
"""

PART = torch.empty(1_000_000, dtype=torch.uint8, device="meta")
PATIENCE_S = 60.0


def message_us(algorithm: str, workers: int) -> float:
    """Return the CPU time per message of *algorithm*, timing only, on a star of *workers*.

    The links have 1 Gbps. The setup of the run is not measured.
    """
    spent: list[tuple[float, int]] = []
    run = SimCluster.run

    def timed(cluster: SimCluster, bodies: Any) -> list[Any]:
        began_s = time.process_time()
        ends = run(cluster, bodies)
        messages = sum(member.recorder.record.messages_sent for member in cluster.members)
        spent.append((time.process_time() - began_s, messages))
        return ends

    steps = max(5, MESSAGES // (2 * workers))
    size = {"topology.workers": workers, "topology.bandwidth": "1 Gbps", "stop.steps": steps, "numerics": "none"}
    with tempfile.TemporaryDirectory() as out, patch.object(SimCluster, "run", timed):
        overrides = {**size, "algorithm.name": algorithm}
        simcluster.run("eight-on-a-switch", overrides=overrides, out=f"{out}/run", report=False)
    ((took_s, messages),) = spent
    return took_s / messages * 1e6


def all_to_all_us(nodes: int) -> float:
    """Return the CPU time per message of repeated `all_to_all` without values.

    The time includes the setup of the cluster.
    """
    rounds = max(1, EXCHANGED // (nodes * nodes))
    parts = [PART] * nodes

    async def body(node: Transport) -> None:
        for number in range(rounds):
            await all_to_all(node, parts, f"part {number}")

    return _cpu_us(body, nodes, rounds)


def one_by_one_us(nodes: int) -> float:
    """Return the CPU time per message if each node repeatedly sends to every other, without a
    collective.
    """
    rounds = max(2, MESSAGES // (nodes * nodes))

    async def body(node: Transport) -> None:
        for number in range(rounds):
            async with asyncio.TaskGroup() as sends:
                for rank in node.peers:
                    sends.create_task(node.send(rank, f"part {number}", PART))
                for rank in node.peers:
                    await node.recv(rank, f"part {number}")

    return _cpu_us(body, nodes, rounds)


def _cpu_us(body: Callable[[Transport], Coroutine[Any, Any, None]], nodes: int, rounds: int) -> float:
    def run() -> None:
        assert run_bodies([body] * nodes, star(nodes)) == [None] * nodes

    return cpu_s(run) / (rounds * nodes * (nodes - 1)) * 1e6


def _measure(case: str, nodes: int) -> float:
    by_hand = {"all_to_all": all_to_all_us, "one_by_one": one_by_one_us}
    return by_hand[case](nodes) if case in by_hand else message_us(case, nodes)


def _cases(largest: int) -> list[tuple[str, str]]:
    messages = [(algorithm, str(size)) for algorithm in ALGORITHMS for size in SIZES]
    messages += [("all_to_all", str(size)) for size in ALL_TO_ALL_SIZES]
    messages += [("one_by_one", str(size)) for size in ONE_BY_ONE_SIZES]
    return [case for case in messages if int(case[1]) <= largest]


def _in_a_process(case: tuple[str, str], checkout: Path) -> float | None:
    """Return the cost of *case* with the code in *checkout*, or None if it takes too long."""
    command = [sys.executable, str(Path(__file__).resolve()), "--case", *case]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(checkout), str(checkout / "backends")])}
    try:
        done = subprocess.run(
            command, cwd=checkout, env=environment, capture_output=True, text=True, check=True, timeout=PATIENCE_S
        )
    except subprocess.TimeoutExpired:
        return None
    return float(done.stdout.split()[-1])


def _row(case: tuple[str, str], costs: list[float | None]) -> str:
    name, nodes = case
    cells = [f"over {PATIENCE_S:.0f} s" if cost is None else f"{cost:,.0f} us" for cost in costs]
    if len(costs) == 2 and None not in costs:
        before, now = (cost for cost in costs if cost is not None)
        cells.append(f"{before / now:.1f}")
    return "| " + " | ".join([name, f"{int(nodes):,}", *cells]) + " |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--before", type=Path, help="another checkout of this project, to compare with")
    parser.add_argument("--largest", type=int, default=max(SIZES), help="the most nodes")
    parser.add_argument("--draw", type=Path, metavar="FILE", help="draw what messages cost, as .svg, .pdf or .png")
    parser.add_argument("--case", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        print(_measure(arguments.case[0], int(arguments.case[1])))
        return
    here = Path(__file__).resolve().parents[2]
    checkouts = [checkout.resolve() for checkout in (arguments.before, here) if checkout is not None]
    print("CPU time of a message, timing only, on a star")
    heads = ["", "nodes", *(["before", "now", "before / now"] if arguments.before else ["now"])]
    print("| " + " | ".join(heads) + " |\n" + "| --- " * len(heads) + "|")
    found = []
    too_long: set[tuple[str, Path]] = set()  # larger cases of this name would take even longer
    for case in _cases(arguments.largest):
        costs = [None if (case[0], at) in too_long else _in_a_process(case, at) for at in checkouts]
        too_long |= {(case[0], at) for at, cost in zip(checkouts, costs, strict=True) if cost is None}
        print(_row(case, costs), flush=True)
        found += [(case[0], int(case[1]), cost, at == here) for at, cost in zip(checkouts, costs, strict=True)]
    if arguments.draw:
        from tools.benchmarks.growth import draw  # an older checkout may lack this module

        draw(found, arguments.draw)


if __name__ == "__main__":
    main()
