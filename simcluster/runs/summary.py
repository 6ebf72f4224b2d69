"""Reduce a run to the numbers of summary.json: totals, nodes, links."""

from __future__ import annotations

import platform
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from simcluster.errors import NodeFailed, WorldFailed
from simcluster.runs.calls import SCRIPT
from simcluster.runs.doubts import doubts_of
from simcluster.runs.record import LISTED, Metric, NodeRecord, RunRecord, regroups
from simcluster.runs.steps import STALENESS, steps_of

if TYPE_CHECKING:
    from simcluster.topology import Device, Topology


LOSS, ACCURACY, PERPLEXITY = "eval_loss", "eval_accuracy", "eval_perplexity"
"""The metrics of held-out samples that an evaluation records.

The perplexity, of language models alone, is e to the power of their loss, which is in nats per token.
"""

CONSENSUS = "eval_consensus"
"""The consensus distance |x_i - mean|^2 of node i: a metric computed from copies of weights."""

AS_THEY_ARE = (
    *("samples", "checkpoints", "resumed", "replay", "portable", "shortcuts"),
    *("one_machine", "left_out", "lost", "faults", "restarts", "notes"),
)
"""The keys in a record's `extra` that are copied to the summary unless their values are empty."""

# Fields of a node's record that are copied to its summary: before its bill, after it, and only if
# not zero.
OF_NODE = ("rank", "compute_s", "wait_s", "bytes_sent", "bytes_received", "messages_sent")
AFTER_ITS_BILL = ("peak_rss_bytes", "grown_rss_bytes", "predicted_peak_bytes", "weights_sha256", "finished_s")
IF_ANY = ("incarnation", "numerics")

REGROUPED = ("time_s", "step", "lost", "joined", "members")
"""Fields of the row of a re-formed group that are copied to the summary."""


def link_use(topology: Topology, record: RunRecord, *, idle: bool = True) -> dict[str, dict[str, float]]:
    """Return link -> the bytes in both directions, and the fraction of its capacity in use.

    Links are in the order of the file; those that carried nothing are left out unless *idle*. The
    bytes of each pair of nodes follow the topology's route. The fraction of a full-duplex link is
    that of its busier direction; the fraction of a half-duplex link is that of both together. The
    capacity is the nominal one, which faults may have changed during the run.
    """
    carried: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    for node in record.nodes:
        for peer, (_, size_bytes) in node.sent_to.items():
            by_route = node.sent_over.get(peer, ())
            for hop, part_bytes in topology.carried(node.name, topology.workers[peer], size_bytes, by_route):
                carried[hop.link.name][0 if hop.forward else 1] += part_bytes
    use = {}
    for link in topology.links:
        forward, backward = carried.get(link.name, (0, 0))
        if not (idle or forward or backward):
            continue
        busiest = forward + backward if link.duplex == "half" else max(forward, backward)
        capacity_bytes = link.bandwidth_Bps * record.lasted_s
        busy_fraction = busiest / capacity_bytes if capacity_bytes else 0.0
        use[link.name] = {"bytes": forward + backward, "busy_fraction": busy_fraction}
    return use


def summarize(config: Mapping[str, Any], topology: Topology, record: RunRecord, version: str) -> dict[str, Any]:
    """Return the content of summary.json, in its order; unknown numbers are None."""
    metrics = [metric for node in record.nodes for metric in node.metrics]
    # Besides the experiment, the weights may depend on these versions.
    versions = {"python": platform.python_version()}
    for package in ("torch", "numpy", "simpy"):
        with suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    if label(config["algorithm"]) == SCRIPT:
        loss, accuracy = (_last(_of_lowest_rank(record.nodes, name), name) for name in ("loss", "accuracy"))
        perplexity = None
    else:
        judged = record.standing.metrics if record.nodes else []
        loss, accuracy, perplexity = (_last(judged, name) for name in HELD_OUT)
    of_nodes = bills(topology, record)
    steps, updates = steps_of(record)
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
        **({} if perplexity is None else {"perplexity": perplexity}),
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
        if isinstance(record.error, (NodeFailed, WorldFailed)):
            summary["error"]["traceback"] = record.error.details
    if found := doubts_of(record, computes=summary["numerics"] != "none"):
        summary["warnings"] = found
    for key in AS_THEY_ARE:
        if record.extra.get(key):
            summary[key] = record.extra[key]
    if formed := regroups(record.nodes):
        summary["regroups"] = [{key: row[key] for key in REGROUPED} for row in formed]
    resting = [node for node in record.nodes if node.is_idle]
    listed = record.nodes
    if in_short := len(record.nodes) > LISTED and 0 < len(resting) < len(record.nodes):
        summary["resting"] = _resting(resting, of_nodes)
        listed = [node for node in record.nodes if not node.is_idle]
    links = link_use(topology, record, idle=not in_short)
    summary["nodes"] = {node.name: _node(node, of_nodes[node.name]) for node in listed}
    return summary | {"links": links}


def _resting(nodes: Sequence[NodeRecord], of_nodes: Mapping[str, Bill]) -> dict[str, Any]:
    """Return one row for all *nodes*, on which nothing happened; see `RestingNodes`."""
    first = nodes[0]
    ends_s = [node.finished_s for node in nodes if node.finished_s is not None]
    return {
        "nodes": len(nodes),
        "first": first.name,
        "finished_s": max(ends_s) if len(ends_s) == len(nodes) else None,
        **total(of_nodes[node.name] for node in nodes)._asdict(),
        "predicted_peak_bytes": first.predicted_peak_bytes,
        "weights_sha256": first.weights_sha256,
    }


def label(block: Mapping[str, Any] | str) -> str:
    """Return the name in a block of an experiment, or "file:function" of user code."""
    if isinstance(block, str):
        return block
    path = str(block.get("path") or "unnamed").replace("\\", "/")
    return str(block.get("name") or path.rpartition("/")[2])


def _node(node: NodeRecord, bill: Bill) -> dict[str, Any]:
    found = {key: getattr(node, key) for key in OF_NODE} | bill._asdict()
    found |= {key: getattr(node, key) for key in AFTER_ITS_BILL}
    return found | {key: value for key in IF_ANY if (value := getattr(node, key))}


def _of_lowest_rank(nodes: Sequence[NodeRecord], name: str) -> list[Metric]:
    """Return all metrics of the lowest rank that recorded the metric *name*; [] if none did."""
    found = [node for node in nodes if any(metric.name == name for metric in node.metrics)]
    return min(found, key=lambda node: node.rank).metrics if found else []


def _last(metrics: list[Metric], name: str) -> float | None:
    """Return the latest value of the metric *name*; at equal times, the one of the highest step."""
    found = [(metric.time_s, metric.step, index) for index, metric in enumerate(metrics) if metric.name == name]
    return metrics[max(found)[2]].value if found else None


class Bill(NamedTuple):
    """The energy and price of one node, or of all nodes; None if a device lacks the number."""

    joules: float | None
    price_usd: float | None


def bills(topology: Topology, record: RunRecord) -> dict[str, Bill]:
    """Return node name -> bill.

    Nodes stay switched on until the run ends, even if they finish earlier.
    """
    found = {}
    alike = dict[tuple[int, float], Bill]()
    lasted_s = record.lasted_s
    if record.extra.get("one_machine") and not topology.is_one_machine:
        # All nodes ran on this machine, so the devices of the topology drew no power.
        return dict.fromkeys((node.name for node in record.nodes), Bill(None, None))
    for node in record.nodes:
        device = topology.device(node.name)
        compute_s = node.compute_s
        # In a large cluster most nodes share a device and did the same work: compute each bill
        # once.
        key = (id(device), compute_s)
        if key not in alike:
            alike[key] = bill(device, compute_s, lasted_s)
        found[node.name] = alike[key]
    return found


def bill(device: Device, compute_s: float, elapsed_s: float) -> Bill:
    """Return the bill of *device* for a run of *elapsed_s* with *compute_s* of work.

    The device draws *power_busy_W* while it works, and *power_idle_W* otherwise, also while it
    sends and receives. Switches and cables are not counted. The price is for the whole run, since a
    waiting device costs the same.
    """
    joules = None
    if device.power_idle_W is not None and device.power_busy_W is not None:
        rest_s = max(0.0, elapsed_s - compute_s)
        joules = compute_s * device.power_busy_W + rest_s * device.power_idle_W
    price_usd = None if device.price_USD_per_h is None else device.price_USD_per_h * elapsed_s / 3600
    return Bill(joules, price_usd)


def total(all_bills: Iterable[Bill]) -> Bill:
    """Return the sum of *all_bills*.

    A number that any bill lacks is None, since a partial sum would look complete.
    """
    bills = list(all_bills)
    return Bill(_sum([bill.joules for bill in bills]), _sum([bill.price_usd for bill in bills]))


def _sum(values: Sequence[float | None]) -> float | None:
    """Return the sum of *values*; None if any value is missing, or if there are none."""
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


HELD_OUT = (LOSS, ACCURACY, PERPLEXITY)


def keep_those_that_stand(record: RunRecord) -> None:
    """Remove from *record* the held-out metrics of all nodes but the representing one.

    If groups were re-formed, this node may have missed steps. For such a step, keep the metrics of
    the lowest rank that made it.
    """
    if not record.nodes:
        return
    stands = record.standing
    others = sorted((node for node in record.nodes if node is not stands), key=lambda node: node.rank)
    known = _held_out(stands)
    formed = bool(regroups(record.nodes))
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
