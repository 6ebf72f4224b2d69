"""What noting the order costs: messages between two processes, with and without, by turns; and how large it gets.

python -m tests.lab.replays.cost [--messages 20000] [--pairs 10]
"""

from __future__ import annotations

import argparse
import json
import time
from statistics import median
from typing import Any

import torch
from simcluster_backends.sockets import run_cluster

from simcluster.job import ClusterJob
from simcluster.runs.event_order import unpack
from simcluster.runs.record import NodeRecord, RunRecord
from simcluster.runs.recorder import Recorder


async def ping(node: Any, recorder: Recorder, config: str) -> NodeRecord:
    """So many small messages there and back, one at a time: what a message costs and nothing else."""
    settings = json.loads(config)
    tensor = torch.zeros(settings["floats"])  # each with other contents, or the checksums would shrink to nothing
    other = 1 - node.rank
    began_s, cpu_s = recorder.now(), time.process_time()
    for number in range(settings["messages"] // 2):
        tensor[0] = number
        if node.rank == 0:
            await node.send(other, "ping", tensor)
            await node.recv(other, "ping")
        else:
            await node.recv(other, "ping")
            await node.send(other, "ping", tensor)
    node.record(step=1, wall_s=recorder.now() - began_s, cpu_s=time.process_time() - cpu_s)
    return recorder.finish(None)


def run(messages: int, floats: int, *, order: bool) -> RunRecord:
    config = json.dumps({"messages": messages, "floats": floats})
    record = run_cluster(
        ClusterJob(["a", "b"], config, program="tests.lab.replays.cost:ping", options={"order": order})
    )
    assert record.error is None, record.error
    return record


def numbers(record: RunRecord, name: str) -> float:
    return sum(metric.value for node in record.nodes for metric in node.metrics if metric.name == name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--pairs", type=int, default=10)
    given = parser.parse_args()
    noted = RunRecord([], 0.0, 0.0)
    for floats in (1, 25_000):
        cpu_us: dict[bool, list[float]] = {True: [], False: []}
        for pair in range(given.pairs):
            for order in (pair % 2 == 0, pair % 2 == 1):
                record = run(given.messages, floats, order=order)
                cpu_us[order].append(numbers(record, "cpu_s") / given.messages * 1e6)
                noted = record if order else noted
        packed_bytes = sum(len(chunk) for node in noted.nodes for chunk in node.order)
        events = sum(len(unpack(node.order).events.kinds) for node in noted.nodes)
        ratios = [with_it / without for with_it, without in zip(cpu_us[True], cpu_us[False], strict=True)]
        # On a machine that others use, too, the least of each is what is least disturbed.
        print(
            f"{4 * floats:,} bytes: CPU time of both ends {min(cpu_us[False]):.1f} us a message without the order and "
            f"{min(cpu_us[True]):.1f} with it, {min(cpu_us[True]) / min(cpu_us[False]):.3f} times (least of "
            f"{given.pairs}; median of pairs {median(ratios):.3f}); {packed_bytes / given.messages:.2f} bytes and "
            f"{events / given.messages:.2f} events a message",
            flush=True,
        )


if __name__ == "__main__":
    main()
