"""Boils a run down to the numbers of summary.json: totals, nodes, links."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from statistics import fmean
from typing import TYPE_CHECKING, Any

from simcluster.errors import NodeFailed
from simcluster.runs.energy import Bill, bills, total
from simcluster.runs.record import Metric, NodeRecord, RunRecord, regroups

if TYPE_CHECKING:
    from simcluster.topology import Topology

LOSS, ACCURACY, STALENESS = "eval_loss", "eval_accuracy", "staleness"
"""Names of metrics that mean something here; algorithms may record others."""

REGROUPED = ("time_s", "step", "lost", "joined", "members")
"""What is told of a group of ranks that was formed anew."""


@dataclass(frozen=True, slots=True)
class LinkUse:
    """Bytes that crossed one link from its first named end to its second, and back; what share of the run it
    was busy.
    """

    forward_bytes: int
    backward_bytes: int
    busy_fraction: float

    @property
    def bytes(self) -> int:
        return self.forward_bytes + self.backward_bytes


def link_use(topology: Topology, record: RunRecord) -> dict[str, LinkUse]:
    """What every link of *topology* carried in the run, by its name, in file order.

    Each pair's bytes follow the topology's route. A full-duplex link is as busy as its busier direction, a
    half-duplex one as both together; both against its nominal bandwidth, which faults may have changed
    meanwhile.
    """
    carried = {link.name: [0, 0] for link in topology.links}
    for node in record.nodes:
        for peer, (_, size_bytes) in node.sent_to.items():
            for hop in topology.route(node.name, topology.workers[peer]):
                carried[hop.link.name][0 if hop.forward else 1] += size_bytes
    use = {}
    for link in topology.links:
        forward, backward = carried[link.name]
        busiest = forward + backward if link.duplex == "half" else max(forward, backward)
        capacity_bytes = link.bandwidth_Bps * record.lasted_s
        use[link.name] = LinkUse(forward, backward, busiest / capacity_bytes if capacity_bytes else 0.0)
    return use


def summarize(config: Mapping[str, Any], topology: Topology, record: RunRecord, version: str) -> dict[str, Any]:
    """The content of summary.json, in its order. Times in seconds, sizes in bytes, absent numbers None."""
    metrics = [metric for node in record.nodes for metric in node.metrics]
    judged = record.standing.metrics if record.nodes else []
    of_nodes = bills(topology, record)
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
        "steps": _steps(record),
        "loss": _last(judged, LOSS),
        "accuracy": _last(judged, ACCURACY),
        "messages_sent": sum(node.messages_sent for node in record.nodes),
        "bytes_sent": sum(node.bytes_sent for node in record.nodes),
        "control_bytes": sum(node.control_bytes for node in record.nodes),
        **total(of_nodes.values())._asdict(),
        "weights_sha256": record.standing.weights_sha256 if record.nodes else None,
        "trace_sha256": record.trace_sha256,
        "version": version,
        "versions": _versions(),
    }
    staleness = [metric.value for metric in metrics if metric.name == STALENESS]
    if staleness:
        summary["staleness"] = {"mean": fmean(staleness), "max": max(staleness)}
    if record.error is not None:
        summary["error"] = {"type": type(record.error).__name__, "message": str(record.error)}
        if isinstance(record.error, NodeFailed):
            summary["error"]["traceback"] = record.error.details
    for key in ("samples", "checkpoints", "resumed", "replay", "portable"):
        if record.extra.get(key):
            summary[key] = record.extra[key]
    if record.extra.get("lost"):
        summary["lost"] = record.extra["lost"]
    if record.extra.get("faults"):
        summary["faults"] = record.extra["faults"]
    if record.extra.get("restarts"):
        summary["restarts"] = record.extra["restarts"]
    if formed := regroups(record.nodes):
        summary["regroups"] = [{key: row[key] for key in REGROUPED} for row in formed]
    summary["nodes"] = {node.name: _node(node, of_nodes[node.name]) for node in record.nodes}
    summary["links"] = {
        name: {"bytes": use.bytes, "busy_fraction": use.busy_fraction}
        for name, use in link_use(topology, record).items()
    }
    return summary


def label(block: Mapping[str, Any] | str) -> str:
    """What to call an algorithm, workload or topology block: its name, or the file and function it is loaded from."""
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
        "weights_sha256": node.weights_sha256,
        "finished_s": node.finished_s,
        **({"incarnation": node.incarnation} if node.incarnation else {}),
        **({"numerics": node.numerics} if node.numerics else {}),
    }


def _steps(record: RunRecord) -> int:
    """The last step that a node recorded; of groups formed again, the last that the standing one did or took over."""
    if not regroups(record.nodes):
        return max((node.steps for node in record.nodes), default=0)
    node = record.standing
    return max(node.steps, *(int(row["step"]) for row in node.regroups), 0)


def _last(metrics: list[Metric], name: str) -> float | None:
    """The latest value called *name*; of several at one time, the one of the highest step."""
    found = [(metric.time_s, metric.step, index) for index, metric in enumerate(metrics) if metric.name == name]
    return metrics[max(found)[2]].value if found else None


def _versions() -> dict[str, str]:
    """What the weights may depend on beside the experiment itself."""
    found = {"python": platform.python_version()}
    for package in ("torch", "numpy", "simpy"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
