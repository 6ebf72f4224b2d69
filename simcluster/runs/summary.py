"""Reduce a run to the numbers of summary.json: totals, nodes, links."""

from __future__ import annotations

import platform
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from simcluster.errors import NodeFailed
from simcluster.runs.calls import SCRIPT
from simcluster.runs.doubts import doubts_of
from simcluster.runs.record import LISTED, Metric, NodeRecord, RunRecord, regroups
from simcluster.runs.steps import STALENESS, steps_of

if TYPE_CHECKING:
    from simcluster.topology import Device, Topology


LOSS, ACCURACY = "eval_loss", "eval_accuracy"
"""Names of metrics with a meaning here; algorithms may record others."""

CONSENSUS = "eval_consensus"
"""The metric computed from copies of weights: |x_i - mean|^2 of node i, the consensus distance."""

AS_THEY_ARE = (
    *("samples", "checkpoints", "resumed", "replay", "portable"),
    *("one_machine", "left_out", "lost", "faults", "restarts", "notes"),
)
"""Keys that a run has only where there is something to say."""

REGROUPED = ("time_s", "step", "lost", "joined", "members")
"""Fields of a re-formed group of ranks."""


def link_use(topology: Topology, record: RunRecord, *, idle: bool = True) -> dict[str, dict[str, float]]:
    """Return the bytes over every link of *topology*, both ways, and the share of the run it was busy, in file order.

    Links that carried nothing are there only if *idle*. Each pair's bytes follow the topology's route. A full-duplex
    link is as busy as its busier direction, a half-duplex one as both together; both relative to its nominal bandwidth,
    which faults may have changed meanwhile.
    """
    carried: defaultdict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for node in record.nodes:
        for peer, (_, size_bytes) in node.sent_to.items():
            for hop in topology.route(node.name, topology.workers[peer]):
                carried[hop.link.a, hop.link.b][0 if hop.forward else 1] += size_bytes
    use = {}
    for link in topology.links:
        forward, backward = carried.get((link.a, link.b), (0, 0))
        if not (idle or forward or backward):
            continue
        busiest = forward + backward if link.duplex == "half" else max(forward, backward)
        capacity_bytes = link.bandwidth_Bps * record.lasted_s
        busy_fraction = busiest / capacity_bytes if capacity_bytes else 0.0
        use[link.name] = {"bytes": forward + backward, "busy_fraction": busy_fraction}
    return use


def summarize(config: Mapping[str, Any], topology: Topology, record: RunRecord, version: str) -> dict[str, Any]:
    """Return the content of summary.json, in its order. Times in seconds, sizes in bytes, absent numbers None."""
    metrics = [metric for node in record.nodes for metric in node.metrics]
    versions = {"python": platform.python_version()}  # those that the weights may depend on besides the experiment
    for package in ("torch", "numpy", "simpy"):
        with suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    if label(config["algorithm"]) == SCRIPT:
        loss, accuracy = (_last(_of_lowest_rank(record.nodes, name), name) for name in ("loss", "accuracy"))
    else:
        judged = record.standing.metrics if record.nodes else []
        loss, accuracy = _last(judged, LOSS), _last(judged, ACCURACY)
    of_nodes, (steps, updates) = bills(topology, record), steps_of(record)
    summary: dict[str, Any] = {
        "name": config["name"],
        "backend": config["backend"],
        "algorithm": label(config["algorithm"]),
        "topology": topology.name,
        "seed": config["seed"],
        "numerics": config.get("numerics", "real"),
        "status": "done" if record.error is None else "failed",
        "elapsed_s": record.elapsed_s,
        **record.extra.get("intervals", {}),
        "wall_s": record.wall_s,
        "steps": steps,
        **({} if updates is None else {"updates": updates}),
        "loss": loss,
        "accuracy": accuracy,
        "messages_sent": sum(node.messages_sent for node in record.nodes),
        "bytes_sent": sum(node.bytes_sent for node in record.nodes),
        "control_bytes": sum(node.control_bytes for node in record.nodes),
        **total(of_nodes.values())._asdict(),
        "weights_sha256": record.standing.weights_sha256 if record.nodes else None,
        "trace_sha256": record.trace_sha256,
        "version": version,
        "versions": versions,
    }
    staleness = [metric.value for metric in metrics if metric.name == STALENESS]
    if staleness:
        summary["staleness"] = {"mean": fmean(staleness), "max": max(staleness)}
    if record.error is not None:
        summary["error"] = {"type": type(record.error).__name__, "message": str(record.error)}
        if isinstance(record.error, NodeFailed):
            summary["error"]["traceback"] = record.error.details
    if found := doubts_of(record, computes=summary["numerics"] != "none"):
        summary["warnings"] = found
    for key in AS_THEY_ARE:
        if record.extra.get(key):
            summary[key] = record.extra[key]
    if formed := regroups(record.nodes):
        summary["regroups"] = [{key: row[key] for key in REGROUPED} for row in formed]
    resting, listed = [node for node in record.nodes if node.is_idle], record.nodes
    if in_short := len(record.nodes) > LISTED and 0 < len(resting) < len(record.nodes):
        summary["resting"] = _resting(resting, of_nodes)
        listed = [node for node in record.nodes if not node.is_idle]
    links = link_use(topology, record, idle=not in_short)
    summary["nodes"] = {node.name: _node(node, of_nodes[node.name]) for node in listed}
    return summary | {"links": links}


def _resting(nodes: Sequence[NodeRecord], of_nodes: Mapping[str, Bill]) -> dict[str, Any]:
    """Return one row for all *nodes*, on which nothing has happened."""
    first, ends_s = nodes[0], [node.finished_s for node in nodes if node.finished_s is not None]
    return {
        "nodes": len(nodes),
        "first": first.name,
        "finished_s": max(ends_s) if len(ends_s) == len(nodes) else None,
        **total(of_nodes[node.name] for node in nodes)._asdict(),
        "predicted_peak_bytes": first.predicted_peak_bytes,
        "weights_sha256": first.weights_sha256,
    }


def label(block: Mapping[str, Any] | str) -> str:
    """Return the name of an algorithm, workload or topology block, or the file and function it is loaded from."""
    if isinstance(block, str):
        return block
    path = str(block.get("path") or "unnamed").replace("\\", "/")
    return str(block.get("name") or path.rpartition("/")[2])


def _node(node: NodeRecord, bill: Bill) -> dict[str, Any]:
    return {
        "rank": node.rank,
        "compute_s": node.compute_s,
        "wait_s": node.wait_s,
        "bytes_sent": node.bytes_sent,
        "bytes_received": node.bytes_received,
        "messages_sent": node.messages_sent,
        **bill._asdict(),
        "peak_rss_bytes": node.peak_rss_bytes,
        "grown_rss_bytes": node.grown_rss_bytes,
        "predicted_peak_bytes": node.predicted_peak_bytes,
        "weights_sha256": node.weights_sha256,
        "finished_s": node.finished_s,
        **({"incarnation": node.incarnation} if node.incarnation else {}),
        **({"numerics": node.numerics} if node.numerics else {}),
    }


def _of_lowest_rank(nodes: Sequence[NodeRecord], name: str) -> list[Metric]:
    """Return the metrics of the lowest rank that recorded one named *name*."""
    found = [node for node in nodes if any(metric.name == name for metric in node.metrics)]
    return min(found, key=lambda node: node.rank).metrics if found else []


def _last(metrics: list[Metric], name: str) -> float | None:
    """Return the latest value named *name*; of several at one time, the one with the highest step."""
    found = [(metric.time_s, metric.step, index) for index, metric in enumerate(metrics) if metric.name == name]
    return metrics[max(found)[2]].value if found else None


class Bill(NamedTuple):
    """*joules* and *price_usd* of a node, or of all; None if a device does not state its power or price."""

    joules: float | None
    price_usd: float | None


def bills(topology: Topology, record: RunRecord) -> dict[str, Bill]:
    """Return each node's bill, by name. Nodes stay switched on until the run ends, even if they finish earlier."""
    found, alike, lasted_s = {}, dict[tuple[int, float], Bill](), record.lasted_s
    if record.extra.get("one_machine") and not topology.is_one_machine:
        return dict.fromkeys((node.name for node in record.nodes), Bill(None, None))  # the devices were not there
    for node in record.nodes:
        device, compute_s = topology.nodes[node.name].device, node.compute_s
        assert device is not None, "a worker has a device"
        key = (id(device), compute_s)  # only to find the same again
        if key not in alike:
            alike[key] = bill(device, compute_s, lasted_s)
        found[node.name] = alike[key]
    return found


def bill(device: Device, compute_s: float, elapsed_s: float) -> Bill:
    """Return the bill of *device* for a run of *elapsed_s* with *compute_s* of work.

    It draws *power_busy_W* while working, else *power_idle_W*: sending and receiving count as idle. Switches and cables
    are not counted. The price covers the whole time, since a waiting device is paid for, too.
    """
    joules = None
    if device.power_idle_W is not None and device.power_busy_W is not None:
        rest_s = max(0.0, elapsed_s - compute_s)
        joules = compute_s * device.power_busy_W + rest_s * device.power_idle_W
    price_usd = None if device.price_USD_per_h is None else device.price_USD_per_h * elapsed_s / 3600
    return Bill(joules, price_usd)


def total(all_bills: Iterable[Bill]) -> Bill:
    """Return the sum; a part that any bill lacks is None, since a sum without it would look complete."""
    bills = list(all_bills)
    return Bill(_sum([bill.joules for bill in bills]), _sum([bill.price_usd for bill in bills]))


def _sum(values: Sequence[float | None]) -> float | None:
    """Return the sum of *values*; None if one is missing, or all."""
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


HELD_OUT: Final = (LOSS, ACCURACY)


def keep_those_that_stand(record: RunRecord) -> None:
    """Leave in *record* only the held-out metrics of the node that stands for the run.

    If groups were re-formed, steps that this node missed keep those of the lowest rank that made them.
    """
    if not record.nodes:
        return
    stands = record.standing
    others = sorted((node for node in record.nodes if node is not stands), key=lambda node: node.rank)
    known, formed = _held_out(stands), bool(regroups(record.nodes))
    for node in others:
        if not node.metrics:
            continue
        fills = formed and node.trained
        keeps = _held_out(node) - known if fills else set()
        node.metrics = [
            metric for metric in node.metrics if metric.name not in HELD_OUT or (metric.name, metric.step) in keeps
        ]
        known |= keeps


def _held_out(node: NodeRecord) -> set[tuple[str, int]]:
    return {(metric.name, metric.step) for metric in node.metrics if metric.name in HELD_OUT}
