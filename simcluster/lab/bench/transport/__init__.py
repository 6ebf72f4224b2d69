"""Time a real backend's transport against torch.distributed's gloo on this machine."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from itertools import product
from statistics import median
from typing import Any

from simcluster.backend import real_nodes
from simcluster.errors import Problem, raise_all
from simcluster.job import ClusterJob
from simcluster.lab.bench.transport.measure import CPU, GLOO, OPERATIONS, OURS
from simcluster.runs.record import NodeRecord
from simcluster.units import UnitError, parse_size

PROGRAM = "simcluster.lab.bench.transport.measure:measure"
FLOAT_BYTES = 4
MOST_BYTES = 10**9
MOST_NODES = 16
MOST_REPEATS = 1000


def bench_transport(nodes: str, sizes: str, repeats: int = 9) -> list[dict[str, Any]]:
    """Time all-reduce and push/pull among *nodes* processes ("2,4") with *sizes* ("10kB,1MB").

    Return one row per number of nodes, size and operation: *ours_s* and *gloo_s* are medians over
    *repeats* of the slowest rank's time, and *ratio* is ours / gloo. *ours_cpu_s*, *gloo_cpu_s* and
    *cpu_ratio* are their counterparts for the CPU time of all ranks together. Raise UsageError,
    with all problems, before anything starts. Raise RunError if a node or its gloo process fails.
    """
    import torch.distributed as dist

    problems: list[Problem] = []
    counts, bytes_of = _nodes(nodes, problems), _sizes(sizes, problems)
    if not 1 <= repeats <= MOST_REPEATS:
        problems.append(Problem("--repeats", str(repeats), f"1 to {MOST_REPEATS}"))
    if not (dist.is_available() and dist.is_gloo_available()):
        problems.append(Problem("torch", "a build without gloo", "one with torch.distributed's gloo, to compare with"))
    raise_all(problems)
    config_json = json.dumps({"sizes": bytes_of, "repeats": repeats})
    rows: list[dict[str, Any]] = []
    for count in counts:
        job = ClusterJob([f"node{rank}" for rank in range(count)], config_json, program=PROGRAM)
        record = real_nodes().run_cluster(job)
        if record.error is not None:
            raise record.error
        rows += rows_of(count, record.nodes)
    return rows


def rows_of(count: int, records: Iterable[NodeRecord]) -> list[dict[str, Any]]:
    """Return the rows of `bench_transport` from *records* of *count* nodes.

    Sizes are in the order in which they were measured.
    """
    found_s: dict[tuple[int, str, str], dict[int, float]] = defaultdict(dict)
    for record in records:
        for metric in record.metrics:
            name, whose, size = metric.name.split(":")
            repeats = found_s[int(size), name, whose]
            before_s = repeats.get(metric.step, 0.0)
            # CPU times add up over ranks; for elapsed times, the slowest rank counts.
            repeats[metric.step] = before_s + metric.value if whose.endswith(CPU) else max(before_s, metric.value)
    medians_s = {key: median(repeats.values()) for key, repeats in found_s.items()}
    sizes = dict.fromkeys(size for size, _, _ in medians_s)
    rows: list[dict[str, Any]] = []
    for size, name in product(sizes, OPERATIONS):
        rows.append({"operation": name, "nodes": count, "bytes": size})
        for of in ("", CPU):
            ours_s, gloo_s = medians_s[size, name, OURS + of], medians_s[size, name, GLOO + of]
            rows[-1] |= {f"ours{of}_s": ours_s, f"gloo{of}_s": gloo_s, f"{of}_ratio".strip("_"): ours_s / gloo_s}
    return rows


def _nodes(text: str, problems: list[Problem]) -> list[int]:
    found = [int(part) if part.isascii() and part.isdigit() else 0 for part in map(str.strip, text.split(","))]
    if not all(2 <= count <= MOST_NODES for count in found):
        problems.append(Problem("--nodes", repr(text), f"numbers from 2 to {MOST_NODES}, such as 2,4"))
    return list(dict.fromkeys(found))


def _sizes(text: str, problems: list[Problem]) -> list[int]:
    found: dict[int, None] = {}
    for part in map(str.strip, text.split(",")):
        try:
            size = parse_size(part)
        except UnitError as error:
            problems.append(Problem("--sizes", error.found, error.expected))
            continue
        if not 0 < size <= MOST_BYTES or size % FLOAT_BYTES:
            expected = f"{FLOAT_BYTES} B to {MOST_BYTES // 10**6} MB, whole floats of {FLOAT_BYTES} bytes"
            problems.append(Problem("--sizes", repr(part), expected))
        found[size] = None
    return list(found)
