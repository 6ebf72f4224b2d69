"""Many flows and many nodes at once: the cost of a message as the cluster grows, and of many flows at once.

python -m tools.benchmarks.contention [--before CHECKOUT] [--largest N] [--draw FILE.svg]

Each case runs in a fresh process. With another checkout of this project, each case runs there as well, right before,
and the table has both numbers and their ratio.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
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
from simcluster_backends.sim.plain_flows import finish_times

import simcluster
from simcluster.collectives import all_to_all
from simcluster.topology import star
from simcluster.topology.plain_flows import PlainFlow
from simcluster.transport import Transport
from tools.benchmarks.timing import ROUNDS, cpu_s

FLOWS, HOSTS = 1000, 64
MESSAGES = 4000
ALGORITHMS, SIZES = ("sync_ps", "edp", "fedbuff"), (8, 64, 256, 1024, 4096, 16384)
ALL_TO_ALL_SIZES, ONE_BY_ONE_SIZES = (64, 256, 1024), (8, 32, 64, 128, 256)
EXCHANGED = 2**17
"""Messages of `all_to_all`, at least: each is computed, with others, in much less time than one that is simulated."""

PART = torch.empty(1_000_000, dtype=torch.uint8, device="meta")
MANY_FLOWS = ((1000, 64), (4000, 64))
PATIENCE_S = 60.0


def thousand_flows_s() -> float:
    """CPU time of 1,000 random flows that start together among 64 hosts of a star: the median of several runs."""
    return statistics.median(flows_s(FLOWS, HOSTS) for _ in range(ROUNDS))


def flows_s(number: int, hosts: int) -> float:
    """CPU time of *number* random flows that start together among *hosts* of a star."""
    chance = random.Random(1)
    flows = []
    for _ in range(number):
        source, target = chance.sample(range(hosts), 2)
        flows.append(PlainFlow(f"n{source}", f"n{target}", float(chance.randrange(10**6, 10**8))))
    cluster = star(hosts, bandwidth=125e6, latency=25e-6)
    return cpu_s(lambda: finish_times(cluster, flows))


def message_us(algorithm: str, workers: int) -> float:
    """CPU time of one message of *algorithm*, timing only, on a star of *workers* at 1 Gbps, without the set-up."""
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
    """CPU time of one message of the collective without values, again and again, the set-up of the cluster included."""
    rounds = max(1, EXCHANGED // (nodes * nodes))
    parts = [PART] * nodes

    async def body(node: Transport) -> None:
        for number in range(rounds):
            await all_to_all(node, parts, f"part {number}")

    return _cpu_us(body, nodes, rounds)


def one_by_one_us(nodes: int) -> float:
    """CPU time of one message where all nodes send to all others at once by hand, again and again."""
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


def _measure(case: str, *numbers: int) -> float:
    if case == "flows":
        return flows_s(*numbers)
    by_hand = {"all_to_all": all_to_all_us, "one_by_one": one_by_one_us}
    return by_hand[case](*numbers) if case in by_hand else message_us(case, *numbers)


def _cases(largest: int) -> list[tuple[str, ...]]:
    messages = [(algorithm, str(size)) for algorithm in ALGORITHMS for size in SIZES]
    messages += [("all_to_all", str(size)) for size in ALL_TO_ALL_SIZES]
    messages += [("one_by_one", str(size)) for size in ONE_BY_ONE_SIZES]
    flows = [("flows", str(number), str(hosts)) for number, hosts in MANY_FLOWS]
    return [case for case in messages if int(case[1]) <= largest] + flows


def _in_a_process(case: tuple[str, ...], checkout: Path) -> float | None:
    """Return what *case* costs with the code of *checkout*; None if that takes too long."""
    command = [sys.executable, str(Path(__file__).resolve()), "--case", *case]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(checkout), str(checkout / "backends")])}
    try:
        done = subprocess.run(
            command, cwd=checkout, env=environment, capture_output=True, text=True, check=True, timeout=PATIENCE_S
        )
    except subprocess.TimeoutExpired:
        return None
    return float(done.stdout.split()[-1])


def _row(case: tuple[str, ...], costs: list[float | None]) -> str:
    name, *numbers = case
    unit, digits = ("s", 2) if name == "flows" else ("us", 0)
    size = " among ".join(f"{int(number):,}" for number in numbers)
    cells = [f"over {PATIENCE_S:.0f} s" if cost is None else f"{cost:,.{digits}f} {unit}" for cost in costs]
    if len(costs) == 2 and None not in costs:
        before, now = (cost for cost in costs if cost is not None)
        cells.append(f"{before / now:.1f}")
    return "| " + " | ".join([name, size, *cells]) + " |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--before", type=Path, help="another checkout of this project, to compare with")
    parser.add_argument("--largest", type=int, default=max(SIZES), help="the most nodes")
    parser.add_argument("--draw", type=Path, metavar="FILE", help="draw what messages cost, as .svg, .pdf or .png")
    parser.add_argument("--case", nargs="+", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.case:
        print(_measure(asked.case[0], *map(int, asked.case[1:])))
        return
    here = Path(__file__).resolve().parents[2]
    checkouts = [checkout.resolve() for checkout in (asked.before, here) if checkout is not None]
    print("CPU time of a message, timing only, on a star; of flows, of all that start at once")
    heads = ["", "nodes, or flows among hosts", *(["before", "now", "before / now"] if asked.before else ["now"])]
    print("| " + " | ".join(heads) + " |\n" + "| --- " * len(heads) + "|")
    found = []
    given_up: set[tuple[str, Path]] = set()  # larger cases would take longer
    for case in _cases(asked.largest):
        costs = [None if (case[0], at) in given_up else _in_a_process(case, at) for at in checkouts]
        given_up |= {(case[0], at) for at, cost in zip(checkouts, costs, strict=True) if cost is None}
        print(_row(case, costs), flush=True)
        if case[0] != "flows":
            found += [(case[0], int(case[1]), cost, at == here) for at, cost in zip(checkouts, costs, strict=True)]
    if asked.draw:
        from tools.benchmarks.growth import draw  # an older checkout, in which cases run, need not have it

        draw(found, asked.draw)


if __name__ == "__main__":
    main()
